// SPDX-License-Identifier: Apache-2.0
// What another sharding propagator makes of small programs, replayed exactly: the shardings that
// follow, and the redistributions around operators whose tensors disagree.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "search/agreed_sharding.h"
#include "search/factor_table.h"
#include "search/sharding_propagation.h"
#include "support/catch.h"

namespace meshplan::propagation_cases_test {
namespace {

using nlohmann::json;

json read_data(const std::string& name) {
  std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/" + name);
  return json::parse(file);
}

/// "a (b c), b -> a" as a table.
std::shared_ptr<FactorTable> table_of(const json& op) {
  auto table = std::make_shared<FactorTable>();
  std::map<std::string, int> numbers;
  std::string rule = op.at("rule").get<std::string>();
  for (std::size_t at = 0; (at = rule.find(',', at)) != std::string::npos; at += 2)
    rule.insert(at, " ");
  std::istringstream text(rule);
  table->tensors.emplace_back();
  bool inside = false;
  bool empty = true;
  for (std::string word; text >> word;) {
    if (word == "->" || word == ",") {
      if (word == "->") table->operands = table->tensors.size();
      table->tensors.emplace_back();
      continue;
    }
    empty = false;
    const bool opens = word.front() == '(';
    if (opens) word.erase(0, 1);
    const bool closes = word.back() == ')';
    if (closes) word.pop_back();
    const auto [at, fresh] = numbers.emplace(word, static_cast<int>(table->factors.size()));
    if (fresh) {
      const auto listed = [&](const char* key) {
        return op.contains(key) && std::count(op.at(key).begin(), op.at(key).end(), json(word)) > 0;
      };
      table->factors.push_back({op.at("sizes").at(word).get<std::int64_t>(),
                                listed("sum")     ? FactorClass::kReduction
                                : listed("whole") ? FactorClass::kWhole
                                : listed("shift") ? FactorClass::kShift
                                                  : FactorClass::kPass,
                                listed("block")});
    }
    if (!inside) table->tensors.back().emplace_back();
    table->tensors.back().back().push_back(at->second);
    inside = (inside || opens) && !closes;
  }
  REQUIRE(!empty);
  table->elementwise = op.value("elementwise", false);
  table->cheap = op.value("cheap", false);
  table->cheap_forward = op.value("cheap_forward", false);
  return table;
}

struct Program {
  PropagationGraph graph;
  std::map<std::string, int> tensors;
  std::vector<std::string> names;
  std::vector<std::string> axes;
  Shardings given;
  std::vector<std::int64_t> priorities;
  std::map<int, AxisSet> unreduced;

  explicit Program(const json& one) {
    for (const json& axis : one.at("mesh")) {
      axes.push_back(axis.at(0));
      graph.mesh.push_back(axis.at(1).get<std::int64_t>());
    }
    for (const auto& [name, tensor] : one.at("tensors").items()) {
      names.push_back(name);
      tensors[name] = graph.add_tensor(tensor.at("shape").get<Shape>());
    }
    given = Shardings(graph);
    priorities.resize(given.dims.size(), 0);
    for (const auto& [name, tensor] : one.at("tensors").items()) {
      if (tensor.contains("given")) give(tensors.at(name), tensor.at("given"));
    }
    for (const json& op : one.at("operators")) {
      PropagationGraph::Op made;
      made.table = table_of(op);
      for (const char* side : {"inputs", "outputs"}) {
        for (const json& name : op.at(side)) {
          // scalars stand in the rule without dimensions, constants not in the case
          const auto found = tensors.find(name.get<std::string>());
          made.tensors.push_back(found == tensors.end() ? -1 : found->second);
        }
      }
      REQUIRE(made.tensors.size() == made.table->tensors.size());
      graph.operators.push_back(std::move(made));
    }
  }

  AxisSet set_of(const json& list) const {
    AxisSet set = 0;
    for (const json& name : list) set |= AxisSet{1} << axis_of(name.get<std::string>());
    return set;
  }
  unsigned axis_of(const std::string& name) const {
    const auto at = std::find(axes.begin(), axes.end(), name);
    REQUIRE(at != axes.end());
    return static_cast<unsigned>(at - axes.begin());
  }
  /// "=a,bp1": closed, cut by a then b, priority 1.
  void give(int tensor, const json& sharding) {
    const auto t = static_cast<std::size_t>(tensor);
    for (std::size_t d = 0; d < sharding.at("dims").size(); ++d) {
      std::string text = sharding.at("dims").at(d);
      const std::size_t at = graph.first_dim[t] + d;
      if (!text.empty() && text.front() == '=') {
        given.open[at] = 0;
        text.erase(0, 1);
      }
      const std::size_t digit = text.find_first_of("0123456789");
      if (digit != std::string::npos) {
        priorities[at] = std::stoll(text.substr(digit));
        text.resize(digit - 1);
      }
      std::istringstream words(text);
      for (std::string axis; std::getline(words, axis, ',');)
        given.dims[at].push_back(static_cast<int>(axis_of(axis)));
    }
    if (sharding.contains("barred")) given.barred[t] |= set_of(sharding.at("barred"));
    if (sharding.contains("unreduced")) {
      unreduced[tensor] = set_of(sharding.at("unreduced"));
      given.barred[t] |= unreduced[tensor];
    }
  }

  std::string text_of(const AxisList& list) const {
    std::string text;
    for (const std::uint8_t axis : list) text += (text.empty() ? "" : ",") + axes[axis];
    return text;
  }
  std::vector<std::string> texts_of(const std::vector<AxisList>& lists) const {
    std::vector<std::string> texts;
    for (const AxisList& list : lists) texts.push_back(text_of(list));
    return texts;
  }
  std::vector<AxisList> dims_of(const Shardings& shardings, int tensor) const {
    const auto t = static_cast<std::size_t>(tensor);
    return {shardings.dims.begin() + static_cast<std::ptrdiff_t>(graph.first_dim[t]),
            shardings.dims.begin() + static_cast<std::ptrdiff_t>(graph.first_dim[t + 1])};
  }
};

Shardings propagated(const Program& program, const std::string& mode) {
  ShardingPropagation propagation(program.graph, program.given, program.priorities);
  if (mode == "basic" || mode == "basic_conservative") {
    propagation.to_fixpoint(ShardingPropagation::Step::kFree, ShardingPropagation::kAllLevels);
  } else if (mode == "aggressive") {
    propagation.to_fixpoint(ShardingPropagation::Step::kResolving, ShardingPropagation::kAllLevels);
  } else if (mode == "op_priority") {
    propagation.by_levels();
  } else {
    REQUIRE(mode == "user_priority");
    propagation.run(true);
  }
  return propagation.shardings();
}

/// One line per operator, redistribution and sum, in order.
struct Row {
  std::string op;
  std::vector<std::vector<std::string>> out;
  std::vector<std::string> axes;
};

std::vector<Row> rows_of(const Program& program, const json& one) {
  std::vector<Row> rows;
  for (std::size_t o = 0; o < program.graph.operators.size(); ++o) {
    const PropagationGraph::Op& op = program.graph.operators[o];
    const FactorTable& table = *op.table;
    const std::string name = one.at("operators").at(o).at("op");
    const auto declared = [&](std::size_t p) {
      return program.texts_of(program.dims_of(program.given, op.tensors[p]));
    };
    if (name == "return") {
      if (declared(0) != declared(1)) rows.push_back({"reshard", {declared(1)}, {}});
      continue;
    }
    const AgreedSharding common = agreed_sharding(program.graph, program.given, o);
    const auto runs = [&](std::size_t p) {
      return program.texts_of(dimensions_under(program.graph, table, p, common));
    };
    for (std::size_t p = 0; p < table.operands; ++p) {
      if (op.tensors[p] >= 0 && !table.tensors[p].empty() && runs(p) != declared(p))
        rows.push_back({"reshard", {runs(p)}, {}});
    }
    Row row{name, {}, {}};
    for (std::size_t p = table.operands; p < op.tensors.size(); ++p) row.out.push_back(runs(p));
    rows.push_back(row);
    for (std::size_t p = table.operands; p < op.tensors.size(); ++p) {
      const auto kept = program.unreduced.find(op.tensors[p]);
      const AxisSet sums =
          common.reduced & ~(kept == program.unreduced.end() ? AxisSet{0} : kept->second);
      Row sum{"all_reduce", {runs(p)}, {}};
      for (std::size_t axis = 0; axis < program.axes.size(); ++axis) {
        if ((sums >> axis & 1U) != 0) sum.axes.push_back(program.axes[axis]);
      }
      if (!sum.axes.empty()) rows.push_back(sum);
      if (runs(p) != declared(p)) rows.push_back({"reshard", {declared(p)}, {}});
    }
  }
  return rows;
}

bool inserted(const std::string& op) { return op == "reshard" || op == "all_reduce"; }

/// Whether `row` is what the case asks for; what it does not say may be anything.
bool agrees(const Row& row, const json& wanted) {
  if (row.op != wanted.at("op")) return false;
  if (wanted.contains("axes") && wanted.at("axes").get<std::vector<std::string>>() != row.axes)
    return false;
  if (!wanted.contains("out")) return true;
  const json& out = wanted.at("out");
  for (std::size_t r = 0; r < row.out.size(); ++r) {
    const json& one = inserted(row.op) ? out : r < out.size() ? out.at(r) : json(row.out[r]);
    if (one.get<std::vector<std::string>>() != row.out[r]) return false;
  }
  return true;
}

std::string text_of(const std::vector<Row>& rows) {
  std::string text;
  for (const Row& row : rows) text += row.op + json(row.out).dump() + json(row.axes).dump() + " ";
  return text;
}

}  // namespace

TEST_CASE("Shardings that follow are those of the reference, dimension by dimension") {
  std::size_t replayed = 0;
  const json data = read_data("propagation_cases.json");
  for (const json& one : data.at("cases")) {
    if (!one.contains("expected")) continue;
    const Program program(one);
    const Shardings found = propagated(program, one.at("mode"));
    INFO(one.at("id") << " " << one.at("test"));
    for (const auto& [name, wanted] : one.at("expected").items()) {
      if (!program.tensors.contains(name)) continue;  // a scalar constant
      Program want = program;
      const int tensor = program.tensors.at(name);
      for (AxisList& list : want.given.dims) list = {};
      want.give(tensor, wanted);
      INFO(name);
      CHECK(program.texts_of(program.dims_of(found, tensor)) ==
            program.texts_of(want.dims_of(want.given, tensor)));
    }
    ++replayed;
  }
  CHECK(replayed == 48);
}

TEST_CASE("Operators whose tensors disagree run as in the reference") {
  std::size_t replayed = 0;
  const json data = read_data("propagation_cases.json");
  for (const json& one : data.at("cases")) {
    if (!one.contains("sequence")) continue;
    const Program program(one);
    const std::vector<Row> rows = rows_of(program, one);
    INFO(one.at("id") << " " << one.at("test") << ": " << text_of(rows));
    std::size_t at = 0;
    for (const json& wanted : one.at("sequence")) {
      while (at < rows.size() && !inserted(rows[at].op) && rows[at].op != wanted.at("op")) ++at;
      CHECK(at < rows.size());
      if (at >= rows.size()) break;
      INFO("wanted " << wanted.dump());
      CHECK(agrees(rows[at], wanted));
      ++at;
    }
    const bool rest_inserted =
        std::any_of(rows.begin() + static_cast<std::ptrdiff_t>(std::min(at, rows.size())),
                    rows.end(),
                    [](const Row& row) { return inserted(row.op); });
    if (!one.at("partial").get<bool>()) CHECK_FALSE(rest_inserted);
    if (one.at("absent_reshard").get<bool>())
      CHECK(std::none_of(
          rows.begin(), rows.end(), [](const Row& row) { return row.op == "reshard"; }));
    ++replayed;
  }
  CHECK(replayed == 87);
}

TEST_CASE("Every case that is left out says why") {
  std::set<std::string> ids;
  const json data = read_data("propagation_cases.json");
  for (const json& one : data.at("cases")) CHECK(ids.insert(one.at("id")).second);
  const json skipped = read_data("propagation_skipped_cases.json");
  for (const json& one : skipped.at("cases")) {
    CHECK(ids.insert(one.at("id")).second);
    CHECK(one.at("reason").get<std::string>().size() > 30);
  }
  CHECK(ids.size() == 146);
}

}  // namespace meshplan::propagation_cases_test

// SPDX-License-Identifier: Apache-2.0
// The operator rules of a sharding propagator over StableHLO, next to ours: equal up to the names
// of factors, or different for a stated reason.
//
// Each of its operators is expressed by one of ours or by a chain of them (`ours_of`). What neither
// ONNX nor the table has is read as a rule of the user's own.
#include <algorithm>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "graph/operator_table.h"
#include "support/catch.h"

namespace meshplan::operator_rule_cases_test {

using nlohmann::json;

namespace {

using Sizes = std::vector<std::int64_t>;

json read_data(const std::string& name) {
  std::ifstream file(std::string(MESHPLAN_TEST_DATA) + "/" + name);
  return json::parse(file);
}

/// p: parallel, r: reduced, s: shifted (a window), t: statistics, w: cannot be cut.
struct FormFactor {
  std::int64_t size = 1;
  char kind = 'p';
};

/// A rule without names: dimensions of all tensors, operands first, as lists of factor numbers.
struct Form {
  std::vector<std::vector<std::vector<int>>> tensors;
  std::size_t operands = 0;
  std::vector<FormFactor> factors;
};

Form form_of(const Rule& rule) {
  Form form;
  for (const Factor& factor : rule.factors) {
    const char kind = factor.kind == FactorKind::kParallel    ? 'p'
                      : factor.kind == FactorKind::kReduction ? 'r'
                      : factor.kind == FactorKind::kStatistic ? 't'
                      : factor.kind == FactorKind::kWindow    ? 's'
                                                              : 'w';
    form.factors.push_back({factor.size, kind});
  }
  const auto add = [&](const OperandRule& operand) {
    std::vector<std::vector<int>> dims;
    for (std::size_t d = 0; d < operand.dims.size(); ++d) {
      dims.push_back(operand.dims[d]);
      if (operand.dims[d].empty() && operand.shape[d] > 1) {  // a dimension of its own
        dims.back().push_back(static_cast<int>(form.factors.size()));
        form.factors.push_back({operand.shape[d], 'w'});
      }
    }
    form.tensors.push_back(std::move(dims));
  };
  for (const OperandRule& operand : rule.operands) add(operand);
  form.operands = form.tensors.size();
  for (const OperandRule& result : rule.results) add(result);
  return form;
}

/// "i (j k), i -> j": names in the order of their first appearance.
Form form_of(const json& one) {
  Form form;
  std::map<std::string, int> numbers;
  std::istringstream text(one.at("rule").get<std::string>());
  form.tensors.emplace_back();
  bool inside = false;
  for (std::string word; text >> word;) {
    if (word == "->") {
      form.operands = form.tensors.size();
      form.tensors.emplace_back();
      continue;
    }
    const bool opens = word.front() == '(';
    if (opens) word.erase(0, 1);
    const bool next = word.back() == ',';
    if (next) word.pop_back();
    const bool closes = !word.empty() && word.back() == ')';
    if (closes) word.pop_back();
    if (!word.empty()) {
      const auto [at, fresh] = numbers.emplace(word, static_cast<int>(form.factors.size()));
      if (fresh) {
        const auto listed = [&](const char* key) {
          return one.contains(key) &&
                 std::count(one.at(key).begin(), one.at(key).end(), json(word)) > 0;
        };
        form.factors.push_back({one.at("sizes").at(word).get<std::int64_t>(),
                                listed("sum")     ? 'r'
                                : listed("whole") ? 'w'
                                : listed("shift") ? 's'
                                                  : 'p'});
      }
      if (!inside) form.tensors.back().emplace_back();
      form.tensors.back().back().push_back(at->second);
      inside = (inside || opens) && !closes;
    }
    if (next) form.tensors.emplace_back();
  }
  return form;
}

/// What first computes `a`, then `b` on its result; factors of the tensor between are one. A window
/// of `b` over a dimension of `a` has as many positions as `b` says.
Form then(const Form& a, const Form& b) {
  Form form;
  form.factors = a.factors;
  const int shift = static_cast<int>(a.factors.size());
  for (const FormFactor& factor : b.factors) form.factors.push_back(factor);
  std::vector<int> same(form.factors.size());
  std::iota(same.begin(), same.end(), 0);
  const auto& from = a.tensors[a.operands];
  const auto& to = b.tensors[0];
  REQUIRE(from.size() == to.size());
  for (std::size_t d = 0; d < from.size(); ++d) {
    bool alike = from[d].size() == to[d].size();
    for (std::size_t i = 0; alike && i < to[d].size(); ++i) {
      FormFactor& theirs = form.factors[static_cast<std::size_t>(from[d][i])];
      const FormFactor& mine = b.factors[static_cast<std::size_t>(to[d][i])];
      if (mine.kind == 's' && to[d].size() == 1) theirs.size = mine.size;
      alike = theirs.size == mine.size;
    }
    for (std::size_t i = 0; i < to[d].size(); ++i) {
      const auto mine = static_cast<std::size_t>(to[d][i] + shift);
      if (!alike) {
        form.factors[mine].kind = 'w';
        continue;
      }
      same[mine] = from[d][i];
      FormFactor& theirs = form.factors[static_cast<std::size_t>(from[d][i])];
      if (form.factors[mine].kind != 'p') theirs.kind = form.factors[mine].kind;
    }
    for (const int factor : from[d]) {
      if (!alike) form.factors[static_cast<std::size_t>(factor)].kind = 'w';
    }
  }
  form.tensors.assign(a.tensors.begin(), a.tensors.begin() + static_cast<long>(a.operands));
  form.operands = a.operands;
  for (std::size_t t = b.operands; t < b.tensors.size(); ++t) {
    form.tensors.push_back(b.tensors[t]);
    for (auto& dim : form.tensors.back()) {
      for (int& factor : dim) factor = same[static_cast<std::size_t>(factor + shift)];
    }
  }
  return form;
}

/// `operands` operands like the first one and `results` results like the first one.
Form repeated(const Form& form, std::size_t operands, std::size_t results) {
  Form many = form;
  many.tensors.assign(operands, form.tensors[0]);
  many.tensors.insert(many.tensors.end(), results, form.tensors[form.operands]);
  many.operands = operands;
  return many;
}

/// Text that is equal for rules that shard alike. Factors of size 1, factors that cannot be cut
/// and everything behind them in a dimension are left out, scalars too. A parallel factor of one
/// tensor alone cannot be cut either: the other side has nothing to match it with; only
/// `generates` results have such factors of their own.
std::string canonical(Form form, bool generates) {
  std::vector<std::size_t> tensors_with(form.factors.size(), 0);
  std::vector<bool> in_result(form.factors.size(), false);
  for (std::size_t t = 0; t < form.tensors.size(); ++t) {
    std::set<int> here;
    for (const auto& dim : form.tensors[t]) here.insert(dim.begin(), dim.end());
    for (const int factor : here) {
      ++tensors_with[static_cast<std::size_t>(factor)];
      if (t >= form.operands) in_result[static_cast<std::size_t>(factor)] = true;
    }
  }
  for (std::size_t f = 0; f < form.factors.size(); ++f) {
    if (form.factors[f].kind == 'p' && tensors_with[f] == 1 && !(generates && in_result[f]))
      form.factors[f].kind = 'w';
  }
  for (auto& tensor : form.tensors) {
    for (auto& dim : tensor) {
      dim.erase(std::remove_if(
                    dim.begin(),
                    dim.end(),
                    [&](int f) { return form.factors[static_cast<std::size_t>(f)].size == 1; }),
                dim.end());
    }
  }
  for (bool again = true; again;) {
    again = false;
    for (const auto& tensor : form.tensors) {
      for (const auto& dim : tensor) {
        bool blocked = false;
        for (const int f : dim) {
          char& kind = form.factors[static_cast<std::size_t>(f)].kind;
          blocked = blocked || kind == 'w';
          if (blocked && kind != 'w') {
            kind = 'w';
            again = true;
          }
        }
      }
    }
  }
  std::map<int, int> numbers;
  std::string text;
  for (std::size_t t = 0; t < form.tensors.size(); ++t) {
    if (t == form.operands) text += "-> ";
    if (t < form.operands && form.tensors[t].empty()) continue;
    text += "[";
    for (const auto& dim : form.tensors[t]) {
      text += " ";
      std::string factors;
      for (const int f : dim) {
        const FormFactor& factor = form.factors[static_cast<std::size_t>(f)];
        if (factor.kind == 'w') break;
        const auto [at, fresh] = numbers.emplace(f, static_cast<int>(numbers.size()));
        std::string name(1, static_cast<char>('a' + at->second));
        if (fresh)
          name +=
              std::to_string(factor.size) + (factor.kind == 'p' ? "" : std::string(1, factor.kind));
        factors += (factors.empty() ? "" : "*") + name;
      }
      text += factors.empty() ? "." : factors;
    }
    text += " ] ";
  }
  text.pop_back();
  return text;
}

TensorType tensor(const Sizes& shape, DType dtype = DType::kFp32) { return {shape, dtype}; }

Rule rule_of(const std::string& type,
             const std::vector<TensorType>& operands,
             const Attributes& attributes = {},
             int outputs = 1) {
  OperatorSpec spec;
  spec.type = type;
  spec.attributes = attributes;
  for (const TensorType& operand : operands) spec.inputs.emplace_back(operand);
  spec.output_count = outputs;
  const auto typed = infer_operator(spec);
  if (!typed) FAIL(type << ": " << typed.error().message);
  return *typed->rule;
}

/// The dimensions of every tensor in another order: dimension d of tensor t was `order[t][d]`.
Form reordered(Form form, const std::vector<std::vector<std::size_t>>& order) {
  for (std::size_t t = 0; t < order.size(); ++t) {
    auto dims = form.tensors[t];
    for (std::size_t d = 0; d < dims.size(); ++d) form.tensors[t][d] = dims[order[t][d]];
  }
  return form;
}

/// "[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]" as the place, in ONNX's order, of every dimension.
std::vector<std::vector<std::size_t>> convolution_order(const std::string& text) {
  std::vector<std::vector<std::size_t>> order(1);
  for (const char c : text) {
    if (c == 'x' || c == '>') order.emplace_back();
    if (c == 'b' || c == 'o') order.back().push_back(0);
    if (c == 'f' || c == 'i') order.back().push_back(1);
    if (c >= '0' && c <= '9') order.back().push_back(static_cast<std::size_t>(c - '0') + 2);
  }
  return order;
}

Sizes in_order(const Sizes& shape, const std::vector<std::size_t>& order) {
  Sizes sorted(shape.size());
  for (std::size_t d = 0; d < shape.size(); ++d) sorted[order[d]] = shape[d];
  return sorted;
}

/// begins, then ends, of [[begin, end], ...]
Sizes pads_of(const json& pairs) {
  Sizes pads;
  for (std::size_t side = 0; side < 2; ++side) {
    for (const json& pair : pairs) pads.push_back(pair.at(side).get<std::int64_t>());
  }
  return pads;
}

Form convolution(const json& one, const Sizes& x, const Sizes& w) {
  const json& attrs = one.at("attrs");
  const auto order = convolution_order(attrs.at("dim_numbers").get<std::string>());
  Attributes attributes{{"group", attrs.at("feature_group_count").get<std::int64_t>()}};
  if (attrs.contains("stride")) attributes["strides"] = attrs.at("stride").get<Sizes>();
  if (attrs.contains("pad")) attributes["pads"] = pads_of(attrs.at("pad"));
  return reordered(
      form_of(rule_of(
          "Conv", {tensor(in_order(x, order[0])), tensor(in_order(w, order[1]))}, attributes)),
      order);
}

/// Windows over any dimensions. ONNX's pooling has a batch and a channel in front: dimensions that
/// no window slides along, or new ones of size 1. It has no negative padding; a Pad goes first.
Form pooling(const json& one, Sizes x) {
  const json& attrs = one.at("attrs");
  const auto width = attrs.at("window_dimensions").get<Sizes>();
  const auto stride = attrs.value("window_strides", Sizes(x.size(), 1));
  Sizes pads = attrs.contains("padding") ? pads_of(attrs.at("padding")) : Sizes(2 * x.size(), 0);
  std::optional<Form> padded;
  if (std::any_of(pads.begin(), pads.end(), [](std::int64_t pad) { return pad < 0; })) {
    const Rule pad = rule_of("Pad", {tensor(x)}, {{"pads", pads}});
    padded = form_of(pad);
    x = pad.results[0].shape;
    pads.assign(pads.size(), 0);
  }
  std::vector<std::size_t> plain, slid;
  for (std::size_t d = 0; d < x.size(); ++d) {
    const bool trivial = width[d] == 1 && stride[d] == 1 && pads[d] == 0 && pads[d + x.size()] == 0;
    (trivial && plain.size() < 2 ? plain : slid).push_back(d);
  }
  Sizes shape, kernel, strides, begins, ends;
  for (const std::size_t d : plain) shape.push_back(x[d]);
  shape.resize(2, 1);
  for (const std::size_t d : slid) {
    shape.push_back(x[d]);
    kernel.push_back(width[d]);
    strides.push_back(stride[d]);
    begins.push_back(pads[d]);
    ends.push_back(pads[d + x.size()]);
  }
  begins.insert(begins.end(), ends.begin(), ends.end());
  if (kernel.empty()) {  // a pooling has windows
    shape.push_back(1);
    kernel = strides = {1};
    begins = {0, 0};
  }
  const Form onnx =
      form_of(rule_of("MaxPool",
                      {tensor(shape)},
                      {{"kernel_shape", kernel}, {"strides", strides}, {"pads", begins}}));
  Form form = onnx;
  for (std::size_t t = 0; t < form.tensors.size(); ++t) {
    form.tensors[t].resize(x.size());
    for (std::size_t i = 0; i < plain.size(); ++i) form.tensors[t][plain[i]] = onnx.tensors[t][i];
    for (std::size_t i = 0; i < slid.size(); ++i) form.tensors[t][slid[i]] = onnx.tensors[t][i + 2];
  }
  return padded ? then(*padded, form) : form;
}

/// Of a pooling, x -> y: the gradient x, dy -> dx.
Form pooling_gradient(const json& one, const Sizes& x) {
  Form form = pooling(one, x);
  form.tensors = {form.tensors[0], form.tensors[1], form.tensors[0]};
  form.operands = 2;
  return form;
}

Form broadcast(const Sizes& x, const Sizes& dims, const Sizes& result) {
  Sizes perm(x.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::sort(perm.begin(), perm.end(), [&](std::int64_t a, std::int64_t b) {
    return dims[static_cast<std::size_t>(a)] < dims[static_cast<std::size_t>(b)];
  });
  const Rule transposed = rule_of("Transpose", {tensor(x)}, {{"perm", perm}});
  Sizes axes;
  for (std::int64_t d = 0; d < std::ssize(result); ++d) {
    if (std::count(dims.begin(), dims.end(), d) == 0) axes.push_back(d);
  }
  const Rule widened =
      rule_of("Unsqueeze", {tensor(transposed.results[0].shape)}, {{"axes", axes}});
  const Rule expanded = rule_of("Expand", {tensor(widened.results[0].shape)}, {{"shape", result}});
  return then(then(form_of(transposed), form_of(widened)), form_of(expanded));
}

/// "ab,bc->ac" of contracted and batch dimensions of both sides.
std::string product_equation(const json& attrs, std::size_t left, std::size_t right) {
  std::string x(left, ' '), y(right, ' '), batch, free_x, free_y;
  char letter = 'a';
  const auto pair = [&](const char* key, std::string* result) {
    if (!attrs.contains(key)) return;
    for (std::size_t i = 0; i < attrs.at(key).at(0).size(); ++i) {
      x[attrs.at(key).at(0).at(i).get<std::size_t>()] = letter;
      y[attrs.at(key).at(1).at(i).get<std::size_t>()] = letter;
      if (result != nullptr) *result += letter;
      ++letter;
    }
  };
  pair("batching_dims", &batch);
  pair("contracting_dims", nullptr);
  for (char& c : x) {
    if (c == ' ') free_x += c = letter++;
  }
  for (char& c : y) {
    if (c == ' ') free_y += c = letter++;
  }
  return x + "," + y + "->" + batch + free_x + free_y;
}

/// "0:32, 1:2, 4:8:2"
Attributes slice_attributes(const std::string& text) {
  Sizes starts, ends, steps, axes;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    std::istringstream numbers(part);
    Sizes values;
    for (std::string number; std::getline(numbers, number, ':');)
      values.push_back(std::stoll(number));
    starts.push_back(values.at(0));
    ends.push_back(values.at(1));
    steps.push_back(values.size() > 2 ? values[2] : 1);
    axes.push_back(std::ssize(axes));
  }
  return {{"starts", starts}, {"ends", ends}, {"steps", steps}, {"axes", axes}};
}

/// The rule as a user would write it. What only moves along a dimension is said to be whole, and
/// so is a factor of an operand alone; a whole dimension has a factor of its own in every tensor.
Form own_rule(const json& one) {
  const Form form = form_of(one);
  std::vector<Sizes> shapes = one.at("in").get<std::vector<Sizes>>();
  for (const json& shape : one.at("out")) shapes.push_back(shape.get<Sizes>());
  std::vector<bool> in_result(form.factors.size(), false);
  for (std::size_t t = form.operands; t < form.tensors.size(); ++t) {
    for (const auto& dim : form.tensors[t]) {
      for (const int factor : dim) in_result[static_cast<std::size_t>(factor)] = true;
    }
  }
  std::string text, whole, sum;
  std::map<std::string, std::int64_t> sizes;
  for (std::size_t t = 0; t < form.tensors.size(); ++t) {
    text += t == 0 ? "" : t == form.operands ? " -> " : ", ";
    for (std::size_t d = 0; d < form.tensors[t].size(); ++d) {
      std::string names;
      for (const int f : form.tensors[t][d]) {
        const FormFactor& factor = form.factors[static_cast<std::size_t>(f)];
        std::string name = "f" + std::to_string(f);
        const bool fixed = factor.kind == 'w' || factor.kind == 's' ||
                           (factor.kind == 'p' && !in_result[static_cast<std::size_t>(f)]);
        sizes[name] = factor.size;
        if (fixed) {
          sizes.erase(name);
          name = "w" + std::to_string(t) + "d" + std::to_string(d);
          sizes[name] = shapes[t][d];
          whole += (whole.empty() ? " whole:" : ",") + name;
        } else if (factor.kind == 'r' && (" " + sum + ",").find(name + ",") == std::string::npos) {
          sum += (sum.empty() ? "" : ",") + name;
        }
        names += " " + name;
      }
      text += form.tensors[t][d].size() > 1 ? " (" + names + ")" : names;
    }
  }
  std::vector<std::optional<Sizes>> operands(shapes.begin(),
                                             shapes.begin() + static_cast<long>(form.operands));
  const auto rule =
      make_rule(text + " ;" + (sum.empty() ? "" : " sum:" + sum) + whole, operands, sizes);
  if (!rule) FAIL(text << ": " << rule.error().message);
  for (std::size_t r = 0; r < rule->results.size(); ++r)
    CHECK(rule->results[r].shape == one.at("out").at(r).get<Sizes>());
  return form_of(*rule);
}

std::string reduction_type(const json& attrs) {
  const std::string region =
      attrs.contains("region_ops") ? attrs.at("region_ops").at(0).get<std::string>() : "add";
  return region == "maximum"    ? "ReduceMax"
         : region == "minimum"  ? "ReduceMin"
         : region == "multiply" ? "ReduceProd"
                                : "ReduceSum";
}

Form ours_of(const json& one) {
  const std::string op = one.at("op").get<std::string>();
  const json attrs = one.value("attrs", json::object());
  const auto in = one.at("in").get<std::vector<Sizes>>();
  const auto out = one.at("out").get<std::vector<Sizes>>();
  std::vector<TensorType> operands;
  std::size_t tensors = 0;  // operands that are no scalars
  for (const Sizes& shape : in) {
    operands.push_back(tensor(shape));
    if (!shape.empty()) ++tensors;
  }
  const std::string target = attrs.value("target", "");
  if (op == "concatenate")
    return form_of(rule_of("Concat", operands, {{"axis", attrs.at("dim").get<std::int64_t>()}}));
  if (op == "convolution" && attrs.at("batch_group_count") == 1)
    return convolution(one, in[0], in[1]);
  if (op == "reduce_window") return repeated(pooling(one, in[0]), tensors, out.size());
  if (op == "select_and_scatter") return pooling_gradient(one, in[0]);
  if (op == "broadcast_in_dim") return broadcast(in[0], attrs.at("dims").get<Sizes>(), out[0]);
  if (op == "clamp") return form_of(rule_of("Max", operands));
  if (op == "select")
    return form_of(rule_of("Where", {tensor(in[0], DType::kBool), operands[1], operands[2]}));
  if (target == "mhlo.erf") return form_of(rule_of("Erf", operands));
  if (target == "mhlo.topk" || target == "ApproxTopK") {
    const std::int64_t axis =
        attrs.value("reduction_dim", static_cast<std::int64_t>(in[0].size()) - 1);
    const Rule rule =
        rule_of("TopK",
                {operands[0]},
                {{"k", attrs.value("k", attrs.value("top_k", std::int64_t{1}))}, {"axis", axis}},
                2);
    return repeated(form_of(rule), tensors, out.size());
  }
  if (op == "dot") return form_of(rule_of("MatMul", operands));
  if (op == "dot_general") {
    const std::string equation = product_equation(attrs, in[0].size(), in[1].size());
    return form_of(rule_of("Einsum", operands, {{"equation", equation}}));
  }
  if (op == "pad") {
    Sizes pads = attrs.at("low").get<Sizes>();
    const auto high = attrs.at("high").get<Sizes>();
    pads.insert(pads.end(), high.begin(), high.end());
    return form_of(rule_of("Pad", {operands[0]}, {{"pads", pads}}));
  }
  if (op == "reduce") {
    const Rule rule =
        rule_of(reduction_type(attrs),
                {operands[0]},
                {{"axes", attrs.at("dimensions").get<Sizes>()}, {"keepdims", std::int64_t{0}}});
    return repeated(form_of(rule), tensors, out.size());
  }
  if (op == "reshape") return form_of(rule_of("Reshape", operands, {{"shape", out[0]}}));
  if (op == "reverse") {
    const auto axes = attrs.at("dims").get<Sizes>();
    return form_of(rule_of("Slice",
                           operands,
                           {{"starts", Sizes(axes.size(), -1)},
                            {"ends", Sizes(axes.size(), -(std::int64_t{1} << 40))},
                            {"steps", Sizes(axes.size(), -1)},
                            {"axes", axes}}));
  }
  if (op == "slice")
    return form_of(
        rule_of("Slice", operands, slice_attributes(attrs.at("slice").get<std::string>())));
  if (op == "sort") {
    const Rule rule =
        rule_of("Sort", {operands[0]}, {{"axis", attrs.at("dimension").get<std::int64_t>()}}, 2);
    return repeated(form_of(rule), tensors, out.size());
  }
  if (op == "transpose")
    return form_of(rule_of("Transpose", operands, {{"perm", attrs.at("dims").get<Sizes>()}}));
  return own_rule(one);
}

}  // namespace

TEST_CASE("Rules of StableHLO operators are ours up to names, or differ for a stated reason") {
  const json cases = read_data("operator_rule_cases.json");
  const json deviations = read_data("operator_rule_deviations.json");
  std::map<std::string, std::string> deviates, skipped;
  for (const json& one : deviations.at("deviating")) {
    CHECK(one.at("reason").get<std::string>().size() > 20);
    deviates.emplace(one.at("id").get<std::string>(), one.at("ours").get<std::string>());
  }
  for (const json& one : deviations.at("skipped")) {
    CHECK(one.at("reason").get<std::string>().size() > 20);
    skipped.emplace(one.at("id").get<std::string>(), one.at("reason").get<std::string>());
  }
  std::size_t deviating = 0;
  std::size_t replayed = 0;
  for (const json& one : cases) {
    const auto id = one.at("id").get<std::string>();
    if (skipped.count(id) > 0) continue;
    ++replayed;
    INFO(one.dump());
    const bool generates = one.at("op") == "broadcast_in_dim";
    const std::string theirs = canonical(form_of(one), generates);
    const std::string ours = canonical(ours_of(one), generates);
    const auto deviation = deviates.find(id);
    if (deviation == deviates.end()) {
      CHECK(ours == theirs);
      continue;
    }
    ++deviating;
    CHECK(ours != theirs);
    CHECK(ours == deviation->second);
  }
  CHECK(deviating == deviates.size());
  CHECK(replayed == 64);
  CHECK(replayed + skipped.size() == cases.size());
  CHECK(skipped.size() * 10 <= cases.size());
}

}  // namespace meshplan::operator_rule_cases_test

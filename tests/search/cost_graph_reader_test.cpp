// SPDX-License-Identifier: Apache-2.0
// The two formats of cost graphs, plain and gzip, and everything that can be wrong with them.
#include <cstdint>
#include <string>
#include <vector>

#include <zlib.h>

#include "search/cost_graph.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::cost_graph_reader_test {
namespace {

const char* const kContest = R"json({"problem": {"name": "example",
 "nodes": {"intervals": [[30, 70], [40, 70], [50, 120], [110, 140], [110, 150]],
           "costs": [[15], [55, 65], [25, 45, 35], [85, 75], [95]],
           "usages": [[10], [25, 25], [15, 20, 15], [10, 10], [15]]},
 "edges": {"nodes": [[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]],
           "costs": [[30, 40], [50, 10, 40], [90, 10, 20, 80], [60, 20, 30], [70, 60]]},
 "usage_limit": 50}})json";

const char* const kOwn = R"json({"schema": "meshplan.cost_graph/1.0", "name": "mlp", "moments": 40,
 "nodes": [
  {"name": "fc1", "strategies": [
    {"label": "S(0)", "cost": 0.5, "usage": [[0, 12, 1000], [20, 31, 500]]},
    {"label": "R", "cost": 0.25}]},
  {"name": "fc2", "strategies": [{"cost": 1}, {"cost": 2.0, "usage": [[5, 9, 7]]}]}],
 "edges": [{"nodes": [0, 1], "costs": [[0.0, 0.125], [1.0, 0.0]], "forbidden": [[1, 1]],
            "usage": [{"pair": [0, 1], "intervals": [[5, 9, 4096]]}]}],
 "usage_limit": 5000})json";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(text.size() + 1000, '\0');
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST_CASE("the contest's format is read as it is published") {
  const auto graph = parse_cost_graph(kContest, "g.json");
  REQUIRE(graph.has_value());
  CHECK(graph->contest);
  CHECK(graph->name == "example");
  CHECK(graph->nodes.size() == 5);
  CHECK(graph->edges.size() == 5);
  CHECK(graph->limit == 50);
  CHECK(graph->unit == 1);
  const CostGraphEvaluation evaluation = evaluate(*graph, {0, 0, 2, 1, 0});
  CHECK(evaluation.cost == 445);
  CHECK(evaluation.peak_usage == 50);
  CHECK(evaluation.peak_moment == 50);
  CHECK(evaluation.feasible());
  CHECK(!evaluate(*graph, {0, 0, 1, 1, 0}).feasible());
}

TEST_CASE("the order of members and unknown members of the contest's format do not matter") {
  const char* const text = R"json({"version": [1, {"a": null}], "problem": {"usage_limit": null,
    "edges": {"costs": [[1, 1000000000000000000]], "nodes": [[1, 0]]}, "extra": "x\u00e9\n",
    "nodes": {"usages": [[1, 2], [3]], "costs": [[4, 5], [6]], "intervals": [[9, 3], [-2, 1e2]]}},
    "solution": {"deep": [[[]]], "yes": true, "no": false}})json";
  const auto graph = parse_cost_graph(text, "g.json");
  REQUIRE(graph.has_value());
  CHECK(!graph->limit);
  CHECK(graph->nodes[0].uses.empty());  // an interval that ends before it begins
  CHECK(graph->nodes[1].uses[0].begin == -2);
  CHECK(graph->nodes[1].uses[0].end == 100);
  CHECK(evaluate(*graph, {0, 0}).cost == 11);
  const CostGraphEvaluation forbidden = evaluate(*graph, {1, 0});
  CHECK(forbidden.forbidden == 1);
  CHECK(!forbidden.feasible());
  CHECK(forbidden.first_forbidden == "edge 0, strategies 0 and 1 of nodes 1 and 0");
}

TEST_CASE("our own format has several intervals, memory on edges and forbidden pairs") {
  const auto graph = parse_cost_graph(kOwn, "g.json");
  REQUIRE(graph.has_value());
  CHECK(!graph->contest);
  CHECK(graph->nodes[0].uses.size() == 2);
  CHECK(graph->edges[0].uses.size() == 1);
  const auto cost = [&](const CostGraphAssignment& assignment) {
    return static_cast<double>(evaluate(*graph, assignment).cost) * graph->unit;
  };
  CHECK(cost({0, 0}) == 1.5);
  CHECK(cost({0, 1}) == 2.625);
  CHECK(cost({1, 0}) == 2.25);
  CHECK(evaluate(*graph, {1, 1}).forbidden == 1);
  CHECK(evaluate(*graph, {0, 1}).peak_usage == 5103);
  CHECK(evaluate(*graph, {0, 1}).peak_moment == 5);
  CHECK(!evaluate(*graph, {0, 1}).feasible());
}

TEST_CASE("costs of our own format lie on a grid on which sums are exact") {
  const auto small = parse_cost_graph(
      R"json({"schema": "meshplan.cost_graph/1.0", "edges": [],
              "nodes": [{"strategies": [{"cost": 1.2e-4}]}, {"strategies": [{"cost": 0.1}]}]})json",
      "g");
  REQUIRE(small.has_value());
  CHECK(small->unit == 0x1p-40);
  CHECK(static_cast<double>(evaluate(*small, {0, 0}).cost) * small->unit ==
        Approx(0.10012).epsilon(1e-10));
  const auto large = parse_cost_graph(
      R"json({"schema": "meshplan.cost_graph/1.0", "edges": [],
              "nodes": [{"strategies": [{"cost": 1e17}]}, {"strategies": [{"cost": 3}]}]})json",
      "g");
  REQUIRE(large.has_value());
  CHECK(static_cast<double>(evaluate(*large, {0, 0}).cost) * large->unit ==
        Approx(1e17).epsilon(1e-12));
}

TEST_CASE("files are read plain and compressed, and say what is wrong with them") {
  const test::TemporaryFolder folder;
  const std::string plain = folder.write("g.json", kContest);
  const std::string packed = gzipped(kContest);
  for (const std::string& path :
       {plain, folder.write("g.json.gz", packed), folder.write("twice.gz", packed)}) {
    const auto graph = read_cost_graph(path);
    REQUIRE(graph.has_value());
    CHECK(evaluate(*graph, {0, 0, 2, 1, 0}).cost == 445);
  }
  const auto message = [](const std::string& path) {
    const auto graph = read_cost_graph(path);
    REQUIRE(!graph.has_value());
    return to_string(graph.error());
  };
  CHECK(message(folder.file("none.json")).find("cannot open") != std::string::npos);
  CHECK(message(folder.path().string()).find("is a folder") != std::string::npos);
  CHECK(message("").find("expected the name of a file") != std::string::npos);
  const std::string cut = folder.write("cut.gz", packed.substr(0, packed.size() / 2));
  CHECK(message(cut).find(cut) == 0);
  std::string broken = packed;
  broken[broken.size() / 2] = static_cast<char>(~broken[broken.size() / 2]);
  CHECK(!read_cost_graph(folder.write("broken.gz", broken)).has_value());
  CHECK(message(folder.write("empty.json", "")).find("the end of the text") != std::string::npos);
}

TEST_CASE("a document longer than the reader's buffer is read in pieces") {
  // long lists, long strings and long white space across the ends of the buffer
  std::string text = R"json({"problem": {"name": ")json" + std::string(300000, 'n') +
                     "\", \"nodes\": {\"intervals\": [";
  std::string costs;
  std::string usages;
  constexpr int kNodes = 40000;
  for (int v = 0; v < kNodes; ++v) {
    const std::string comma =
        v == 0 ? "" : "," + std::string(static_cast<std::size_t>(v % 37), ' ');
    text += comma + "[" + std::to_string(v) + "," + std::to_string(v + 1) + "]";
    costs += comma + "[" + std::to_string(v) + "," + std::to_string(123456789012345 + v) + "]";
    usages += comma + "[1,2]";
  }
  text += "], \"costs\": [" + costs + "], \"usages\": [" + usages + "]}," +
          std::string(700000, ' ') + R"json("edges": {"nodes": [], "costs": []}}})json";
  const auto graph = parse_cost_graph(text, "g");
  REQUIRE(graph.has_value());
  REQUIRE(graph->nodes.size() == kNodes);
  CHECK(graph->name.size() == 300000);
  Int128 sum = 0;
  for (int v = 0; v < kNodes; ++v) sum += v;
  CHECK(evaluate(*graph, CostGraphAssignment(kNodes, 0)).cost == sum);
  CHECK(evaluate(*graph, CostGraphAssignment(kNodes, 1)).cost ==
        sum + Int128{kNodes} * 123456789012345);
}

struct Fault {
  std::string text;
  ErrorCode code;
  std::string where;    ///< pointer
  std::string message;  ///< part of it
};

void check_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults) {
    INFO(fault.text);
    const auto graph = parse_cost_graph(fault.text, "g.json");
    REQUIRE(!graph.has_value());
    CHECK(graph.error().code == fault.code);
    CHECK(graph.error().where == (fault.where.empty() ? "g.json" : "g.json: " + fault.where));
    INFO(graph.error().message);
    CHECK(graph.error().message.find(fault.message) != std::string::npos);
  }
}

TEST_CASE("what is no JSON is refused with its place") {
  check_faults({
      {"", ErrorCode::kInput, "", "end of the text"},
      {"[]", ErrorCode::kType, "", "expected an object, found an array"},
      {"{", ErrorCode::kInput, "", "expected a key"},
      {R"json({"problem" 1})json", ErrorCode::kInput, "", "expected \":\""},
      {R"json({"problem": {"name": "a)json", ErrorCode::kInput, "/problem/name", "end of a string"},
      {R"json({"problem": {"name": "\q"}})json", ErrorCode::kInput, "/problem/name", "an escape"},
      {"{\"problem\": {\"name\": \"a\nb\"}}", ErrorCode::kInput, "/problem/name", "control"},
      {R"json({"problem": {"name": "\ud800x"}})json",
       ErrorCode::kInput,
       "/problem/name",
       "second half"},
      {replaced(kContest, "[15]", "[15}"), ErrorCode::kInput, "/problem/nodes/costs/0/0", "\"]\""},
      {replaced(kContest, "[15]", "[15 16]"),
       ErrorCode::kInput,
       "/problem/nodes/costs/0/0",
       "\"]\""},
      {replaced(kContest, "[15]", "[015]"),
       ErrorCode::kInput,
       "/problem/nodes/costs/0/0",
       "number"},
      {replaced(kContest, "[15]", "[tru]"),
       ErrorCode::kType,
       "/problem/nodes/costs/0/0",
       "boolean"},
      {std::string(kContest) + "x", ErrorCode::kInput, "", "expected the end of the text"},
      {R"json({"problem": {"x": )json" + std::string(5000, '['), ErrorCode::kInput, "", "deep"},
  });
}

TEST_CASE("every fault of the contest's format is named with its place") {
  check_faults({
      {"{}", ErrorCode::kMissing, "/", "expected \"schema\" or \"problem\""},
      {R"json({"problem": {}})json", ErrorCode::kMissing, "/problem", "\"nodes\" is missing"},
      {R"json({"problem": []})json", ErrorCode::kType, "/problem", "expected an object"},
      {R"json({"problem": {"nodes": 1, "nodes": 2}})json",
       ErrorCode::kType,
       "/problem/nodes",
       "expected an object, found a number"},
      {replaced(kContest, "\"edges\"", "\"nodes\""),
       ErrorCode::kDuplicate,
       "/problem/nodes",
       "given twice"},
      {replaced(kContest, "[30, 70]", "[30]"),
       ErrorCode::kValue,
       "/problem/nodes/intervals/0",
       "[begin, end]"},
      {replaced(kContest, "[30, 70], ", ""),
       ErrorCode::kValue,
       "/problem/nodes/intervals",
       "expected 5, one per node, found 4"},
      {replaced(kContest, "[15], [55", "[\"15\"], [55"),
       ErrorCode::kType,
       "/problem/nodes/costs/0/0",
       "expected an integer, found a string"},
      {replaced(kContest, "[15], [55", "[1.5], [55"),
       ErrorCode::kType,
       "/problem/nodes/costs/0/0",
       "expected an integer"},
      {replaced(kContest, "[15], [55", "[99999999999999999999], [55"),
       ErrorCode::kOverflow,
       "/problem/nodes/costs/0/0",
       "64 bits"},
      {replaced(kContest, "[15], [55", "[], [55"),
       ErrorCode::kValue,
       "/problem/nodes/costs/0",
       "at least one strategy"},
      {replaced(kContest, "[10], [25, 25]", "[-1], [25, 25]"),
       ErrorCode::kValue,
       "/problem/nodes/usages/0/0",
       "negative"},
      {replaced(kContest, "[10], [25, 25]", "[10], [25]"),
       ErrorCode::kValue,
       "/problem/nodes/usages/1",
       "expected 2, one per strategy, found 1"},
      {replaced(kContest, "[10], [25, 25]", "[25, 25]"),
       ErrorCode::kValue,
       "/problem/nodes/usages",
       "expected 5, one per node, found 4"},
      {replaced(kContest, "[0, 1]", "[0, 5]"),
       ErrorCode::kValue,
       "/problem/edges/nodes/0",
       "there is no node 5"},
      {replaced(kContest, "[0, 1]", "[0, -1]"),
       ErrorCode::kValue,
       "/problem/edges/nodes/0",
       "there is no node -1"},
      {replaced(kContest, "[0, 1]", "[0, 1, 2]"),
       ErrorCode::kUnsupported,
       "/problem/edges/nodes/0",
       "between two nodes, found 3 nodes"},
      {replaced(kContest, "[30, 40]", "[30]"),
       ErrorCode::kValue,
       "/problem/edges/costs/0",
       "expected 2 costs, found 1"},
      {replaced(kContest, "[30, 40], ", ""),
       ErrorCode::kValue,
       "/problem/edges/costs",
       "one per edge, found 4"},
      {replaced(kContest, "\"usage_limit\": 50", "\"usage_limit\": -1"),
       ErrorCode::kValue,
       "/problem/usage_limit",
       "negative"},
      {replaced(kContest, "\"usage_limit\": 50", "\"usage_limit\": \"50\""),
       ErrorCode::kType,
       "/problem/usage_limit",
       "expected an integer"},
  });
}

TEST_CASE("every fault of our own format is named with its place") {
  const std::string own = kOwn;
  check_faults({
      {replaced(own, "cost_graph/1.0", "cost_graph/2.0"),
       ErrorCode::kUnsupported,
       "/schema",
       "1.0"},
      {replaced(own, "cost_graph/1.0", "cost_graph/1.7"),
       ErrorCode::kUnsupported,
       "/schema",
       "newer"},
      {replaced(own, "cost_graph/1.0", "graph/1.0"), ErrorCode::kValue, "/schema", "cost_graph"},
      {replaced(own, "\"schema\": \"meshplan.cost_graph/1.0\", ", ""),
       ErrorCode::kMissing,
       "/",
       "\"schema\" is missing"},
      {replaced(own, "\"usage_limit\"", "\"usage_limits\""),
       ErrorCode::kValue,
       "/usage_limits",
       "did you mean \"usage_limit\"?"},
      {replaced(own, "\"moments\": 40", "\"moments\": 30"),
       ErrorCode::kValue,
       "/moments",
       "ends at 31"},
      {replaced(own, "\"moments\": 40", "\"moments\": -1"),
       ErrorCode::kValue,
       "/moments",
       "at least"},
      {replaced(own, "\"label\"", "\"lable\""),
       ErrorCode::kValue,
       "/nodes/0/strategies/0/lable",
       "did you mean \"label\"?"},
      {replaced(own, "\"cost\": 0.25", "\"label\": \"x\""),
       ErrorCode::kDuplicate,
       "/nodes/0/strategies/1/label",
       "twice"},
      {replaced(own, "\"cost\": 1}", "\"label\": \"x\"}"),
       ErrorCode::kMissing,
       "/nodes/1/strategies/0",
       "\"cost\" is missing"},
      {replaced(own, "\"cost\": 1}", "\"cost\": 1e999}"),
       ErrorCode::kOverflow,
       "/nodes/1/strategies/0/cost",
       "too large"},
      {replaced(own, "[0, 12, 1000]", "[0, 12]"),
       ErrorCode::kValue,
       "/nodes/0/strategies/0/usage/0",
       "[begin, end, bytes]"},
      {replaced(own, "[0, 12, 1000]", "[12, 0, 1000]"),
       ErrorCode::kValue,
       "/nodes/0/strategies/0/usage/0",
       "begin <= end"},
      {replaced(own, "[0, 12, 1000]", "[0, 12, -1]"),
       ErrorCode::kValue,
       "/nodes/0/strategies/0/usage/0",
       "negative"},
      {replaced(own, "{\"name\": \"fc2\", \"strategies\": [{\"cost\": 1}, ", "{\"strategies\": ["),
       ErrorCode::kValue,
       "/edges/0/costs/0",
       "expected 1 cost, found 2"},
      {replaced(own, "[[0.0, 0.125], [1.0, 0.0]]", "[[0.0, 0.125]]"),
       ErrorCode::kValue,
       "/edges/0/costs",
       "expected 2 rows, found 1"},
      {replaced(own, "[[1, 1]]", "[[1, 2]]"), ErrorCode::kValue, "/edges/0/forbidden/0", "no pair"},
      {replaced(own, "[[1, 1]]", "[[1]]"), ErrorCode::kValue, "/edges/0/forbidden/0", "a pair"},
      {replaced(own, "\"pair\": [0, 1]", "\"pair\": [2, 1]"),
       ErrorCode::kValue,
       "/edges/0/usage/0/pair",
       "no pair"},
      {replaced(own, "\"pair\": [0, 1], ", ""),
       ErrorCode::kMissing,
       "/edges/0/usage/0",
       "\"pair\" is missing"},
      {replaced(own, "\"nodes\": [0, 1], \"costs\"", "\"costs\""),
       ErrorCode::kMissing,
       "/edges/0",
       "\"nodes\" is missing"},
      {replaced(own, "\"nodes\": [0, 1]", "\"nodes\": [0, 2]"),
       ErrorCode::kValue,
       "/edges/0/nodes",
       "there is no node 2"},
      {R"json({"schema": "meshplan.cost_graph/1.0", "nodes": [{"name": "a"}], "edges": []})json",
       ErrorCode::kMissing,
       "/nodes/0",
       "\"strategies\" is missing"},
      {R"json({"schema": "meshplan.cost_graph/1.0", "nodes": [{"strategies": []}]})json",
       ErrorCode::kValue,
       "/nodes/0",
       "at least one strategy"},
      {R"json({"schema": "meshplan.cost_graph/1.0", "edges": []})json",
       ErrorCode::kMissing,
       "/",
       "\"nodes\" is missing"},
  });
}

TEST_CASE("assignments are read from lists, from results and from the last line of a text") {
  const auto graph = parse_cost_graph(kContest, "g.json");
  REQUIRE(graph.has_value());
  const CostGraphAssignment expected = {0, 0, 2, 1, 0};
  for (const std::string text : {"[0,0,2,1,0]",
                                 " [0, 0, 2, 1, 0]\n",
                                 R"json({"cost": 1, "assignment": [0, 0, 2, 1, 0]})json",
                                 "example: 5 nodes\n  cost 445\n[0, 0, 2, 1, 0]\n"}) {
    const auto assignment = parse_assignment(text, "a", *graph);
    INFO(text);
    REQUIRE(assignment.has_value());
    CHECK(*assignment == expected);
  }
  for (const std::string text : {"[0,0,2,1]",
                                 "[0,0,2,1,0,0]",
                                 "[0,0,3,1,0]",
                                 "[0,0,-1,1,0]",
                                 "[0,0,2,1,0] x",
                                 "{}",
                                 "",
                                 "nothing"}) {
    INFO(text);
    CHECK(!parse_assignment(text, "a", *graph).has_value());
  }
  CHECK(parse_assignment("[0,0,3,1,0]", "a", *graph).error().where == "a: /2");
}

TEST_CASE("texts that are no UTF-8 are refused, in keys, names and what is skipped") {
  const std::string wrong = "\xff\xfe";
  for (const std::string& text : {replaced(kContest, "example", wrong),
                                  replaced(kContest, "\"name\"", "\"" + wrong + "\""),
                                  replaced(kOwn, "mlp", "caf\xe9"),
                                  replaced(kOwn, "S(0)", wrong)}) {
    const auto graph = parse_cost_graph(text, "g.json");
    REQUIRE(!graph.has_value());
    CHECK(graph.error().message.find("UTF-8") != std::string::npos);
  }
  const auto graph = parse_cost_graph(replaced(kOwn, "mlp", "caf\xc3\xa9"), "g.json");
  REQUIRE(graph.has_value());
  CHECK(graph->name == "caf\xc3\xa9");
}

TEST_CASE("costs so low that no unit holds their sum are refused") {
  std::string text = replaced(kOwn, "\"cost\": 0.5", "\"cost\": -1e308");
  text = replaced(text, "\"cost\": 2.0", "\"cost\": -1e308");
  const auto graph = parse_cost_graph(text, "g.json");
  REQUIRE(!graph.has_value());
  CHECK(graph.error().code == ErrorCode::kOverflow);
  CHECK(graph.error().where == "g.json: /nodes/0/strategies/0/cost");
}

}  // namespace
}  // namespace meshplan::cost_graph_reader_test

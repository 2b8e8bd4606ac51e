// SPDX-License-Identifier: Apache-2.0
// Plans in the formats of other tools, against what the plan says.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "plan/check_plan.h"
#include "plan/exporters/exporter.h"
#include "plan/planned.h"
#include "plan/verify_plan.h"
#include "support/catch.h"
#include "support/run_program.h"

namespace meshplan::exporters_test {
namespace {

using nlohmann::json;

struct Case {
  testing::Planned planned;
  GraphDocument document;
};

std::string text_of(const testing::PlannedCase& wanted) {
  return wanted.graph_text.empty() ? testing::small_llama(wanted) : wanted.graph_text;
}

const testing::PlannedCase& wanted_case(const std::string& name) {
  static const std::vector<testing::PlannedCase> kCases = testing::planned_cases();
  const auto found =
      std::find_if(kCases.begin(), kCases.end(), [&](const auto& c) { return c.name == name; });
  if (found == kCases.end()) FAIL("no case " << name);
  return *found;
}

Case planned(const testing::PlannedCase& wanted) {
  auto document = read_graph_document(text_of(wanted), "graph.json");
  REQUIRE(document);
  Case made{testing::plan_case(wanted), *std::move(document)};
  made.planned.plan.graph = {made.planned.graph.name, made.planned.graph.fingerprint};
  return made;
}

Exported exported(const Case& made, const std::string& format) {
  auto result = export_plan(format, made.planned.plan, made.planned.graph, made.document);
  if (!result) FAIL(to_string(result.error()));
  return *std::move(result);
}

bool has_python() {
  static const bool kThere =
      test::run_program(
          {"-c", "exec python3 -c 'import ast'"}, "", std::chrono::seconds(60), "/bin/sh")
          .exit_code == 0;
  if (!kThere) WARN("python3 is not there: what is written for Python was not run");
  return kThere;
}

/// A module of the same names, whose values print as in plans, and the exported text printed as
/// JSON.
json run_python(const std::string& text) {
  const test::TemporaryFolder folder;
  folder.write("hyper_parallel.py",
               "def Replicate(): return 'R'\n"
               "def Shard(dim): return 'S(%d)' % dim\n"
               "def StridedShard(dim, split_factor): return 'SS(%d,%d)' % (dim, split_factor)\n"
               "def Partial(reduction): return 'P(%s)' % reduction\n"
               "def ShardingPlan(**parts): return parts\n");
  folder.write("exported.py", text);
  folder.write("run.py",
               "import json, exported\nprint(json.dumps({'plan': exported.SHARDING_PLAN, 'mesh': "
               "exported.MESH_SHAPE, 'axes': exported.MESH_DIM_NAMES}))\n");
  const auto run =
      test::run_program({"-c", "cd \"$1\" && exec python3 run.py", "sh", folder.path().string()},
                        "",
                        std::chrono::seconds(60),
                        "/bin/sh");
  INFO(run.err << text);
  REQUIRE(run.exit_code == 0);
  return json::parse(run.out);
}

std::vector<std::string> texts(const Placements& placements) {
  std::vector<std::string> list;
  for (const Placement& placement : placements) list.push_back(to_string(placement));
  return list;
}

TEST_CASE("an exported graph is the same graph: it resolves, checks and verifies with the plan") {
  for (const char* name : {"llama",
                           "llama, tied embeddings",
                           "llama in four micro-batches",
                           "llama, inference",
                           "llama, layers recomputed on a wide mesh",
                           "mlp on a wide mesh"}) {
    INFO(name);
    const testing::PlannedCase& wanted = wanted_case(name);
    const Case made = planned(wanted);
    const Exported graph = exported(made, "graph");
    auto document = read_graph_document(graph.text, "exported.json");
    if (!document) FAIL(to_string(document.error()));
    CHECK(write_graph_document(*document) == graph.text);
    CHECK(fingerprint(*document) == made.planned.plan.graph.fingerprint);
    GraphOptions options;
    options.training = wanted.training;
    options.microbatches = wanted.microbatches;
    auto resolved = resolve(*document, options);
    if (!resolved) FAIL(to_string(resolved.error()));
    REQUIRE(resolved->operators.size() == made.planned.graph.operators.size());
    CHECK(check_plan(made.planned.plan, *resolved, made.planned.cluster).empty());
    const auto verified = verify_plan(made.planned.plan, *resolved);
    REQUIRE(verified);
    CHECK_FALSE(verified->divergence);

    // a Redistribute operator for every move of the forward, with its layouts
    std::multiset<std::string> moves, wanted_moves;
    for (const OperatorDocument& op : document->operators) {
      if (op.type != kRedistributeType) continue;
      moves.insert(to_string(*op.in_placements.at(0)) + " to " +
                   to_string(op.out_placements.at(0)));
    }
    for (const PlanRedistribution& moved : made.planned.plan.redistributions) {
      if (moved.phase == Phase::kForward)
        wanted_moves.insert(to_string(moved.from) + " to " + to_string(moved.to));
    }
    CHECK(moves == wanted_moves);
    // what an operator reads is what the last move before it left
    std::map<std::string, Placements> left;
    for (const OperatorDocument& op : document->operators) {
      for (std::size_t i = 0; i < op.out_placements.size(); ++i)
        left[op.outputs[i]] = op.out_placements[i];
    }
    for (const OperatorDocument& op : document->operators) {
      for (std::size_t i = 0; i < op.in_placements.size(); ++i) {
        const auto found = left.find(op.inputs[i]);
        INFO(op.name << " reads " << op.inputs[i]);
        if (found != left.end()) CHECK(found->second == op.in_placements[i]);
      }
    }
    // and exporting it again changes nothing
    auto again = export_plan("graph", made.planned.plan, *resolved, *document);
    REQUIRE(again);
    CHECK(again->text == graph.text);
  }
}

TEST_CASE("an exported graph holds what its plan fixed, as constraints") {
  const Case made = planned(wanted_case("llama"));
  auto document = read_graph_document(exported(made, "graph").text, "exported.json");
  REQUIRE(document);
  const auto constraints = document_constraints(*document, made.planned.graph);
  REQUIRE(constraints);
  CHECK(constraints->mesh->shape == made.planned.plan.mesh.shape);
  CHECK(constraints->operators.size() == made.planned.graph.operators.size());
  const auto mesh = DeviceMesh::make(constraints->mesh->shape, constraints->mesh->axes);
  const auto bound = bind_constraints(*constraints, made.planned.graph, *mesh);
  if (!bound) FAIL(to_string(bound.error()));
  CHECK(document_constraints(made.document, made.planned.graph) == std::nullopt);
  // in inference the loss is gone, and so is what is said about it
  GraphOptions inference;
  inference.training = false;
  const auto smaller = resolve(*document, inference);
  REQUIRE(smaller);
  const auto fewer = document_constraints(*document, *smaller);
  REQUIRE(fewer);
  CHECK(fewer->operators.size() == smaller->operators.size());
}

TEST_CASE("wrong redistributions and placements in a graph are refused with their place") {
  const auto refuse = [](const std::string& members, const std::string& message) {
    std::string text = R"({"schema": "meshplan.graph/1.0", "mesh": {"shape": [2], "axes": ["d"]},
      "tensors": {"x": {"shape": [8, 8], "dtype": "bf16", "role": "input"},
                  "w": {"shape": [8, 8], "dtype": "bf16", "role": "parameter"}}, )" +
                       members + "}";
    const auto graph = read_graph(text, "g.json", {});
    CHECK((graph ? "no error" : to_string(graph.error())) == message);
  };
  const std::string fc =
      R"({"name": "fc", "type": "MatMul", "inputs": ["m", "w"], "outputs": ["y"]})";
  const auto with = [&](const std::string& move) {
    return "\"operators\": [" + fc + ", " + move + "]";
  };
  refuse(with(R"({"name": "r", "type": "Redistribute", "inputs": ["x"], "outputs": ["m"]})"),
         "no error");
  refuse(with(R"({"name": "r", "type": "Redistribute", "inputs": ["x", "w"], "outputs": ["m"]})"),
         "g.json: /operators/1: a Redistribute operator has one input and one output");
  refuse(
      with(
          R"({"name": "r", "type": "Redistribute", "inputs": ["x"], "outputs": ["m"], "rule": "a -> a"})"),
      "g.json: /operators/1/rule: a Redistribute operator moves a tensor and has no rule; a type "
      "of "
      "your own needs another name");
  refuse(with(R"({"name": "r", "type": "Redistribute", "inputs": ["x"], "outputs": ["y"]})"),
         "g.json: /operators/0/outputs/0: tensor \"y\" is made twice");
  refuse(with(R"({"name": "r", "type": "Redistribute", "inputs": ["x"], "outputs": ["m"]},
                 {"name": "s", "type": "Redistribute", "inputs": ["x"], "outputs": ["m"]})"),
         "g.json: /operators/2/outputs/0: tensor \"m\" is made twice");
  refuse(with(R"({"name": "r", "type": "Redistribute", "inputs": ["x"], "outputs": ["w"]})"),
         "g.json: /operators/1/outputs/0: tensor \"w\" is what it moves and has no entry under "
         "\"tensors\"");
  refuse(with(R"({"name": "r", "type": "Redistribute", "inputs": ["m"], "outputs": ["m"]})"),
         "g.json: /operators/1: redistributions stand in a circle");
  // a place behind a redistribution is still the one in the file
  refuse(
      "\"operators\": [{\"name\": \"r\", \"type\": \"Redistribute\", \"inputs\": [\"x\"], "
      "\"outputs\": "
      "[\"m\"]}, {\"name\": \"fc\", \"type\": \"MatMul\", \"inputs\": [\"m\", \"v\"], \"outputs\": "
      "[\"y\"]}]",
      "g.json: /operators/1/inputs/1: tensor \"v\" is not declared; did you mean \"x\"?");
  refuse(R"("operators": [{"name": "fc", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"],
            "in_placements": [["R"]]}])",
         "g.json: /operators/0/in_placements: expected the placements of 2 tensors, found 1");
  refuse(
      R"("operators": [{"name": "fc", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"],
            "out_placements": [["R", "R"]]}])",
      "g.json: /operators/0/out_placements/0: expected one placement for each of the 1 axes of the "
      "mesh, found 2");
  CHECK(read_graph_document(
            R"({"schema": "meshplan.graph/1.0", "operators": [{"name": "f", "type": "Relu",
          "inputs": ["x"], "outputs": ["y"], "out_placements": [["R"]]}]})",
            "g.json")
            .error()
            .message == "placements refer to the mesh of the graph, and there is no \"mesh\"");
  CHECK(
      read_graph_document(R"({"schema": "meshplan.graph/1.0", "mesh": {"shape": [2], "axes": ["a"]},
          "tensors": {"x": {"placements": ["R"]}}, "operators": []})",
                          "g.json")
          .error()
          .message ==
      "only parameters rest between steps; the placements of other tensors are those of the "
      "operators");
  CHECK(read_graph_document(
            R"({"schema": "meshplan.graph/1.0", "mesh": {"shape": [2, 2], "axes": ["a"]},
          "operators": []})",
            "g.json")
            .error()
            .message == "2 sizes, but 1 axis names");
}

TEST_CASE("every operator, tensor and redistribution is a row of the CSV") {
  const Case made = planned(wanted_case("mlp on a wide mesh"));
  const std::string text = exported(made, "csv").text;
  std::map<std::string, std::size_t> rows;
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find("\r\n", at);
    REQUIRE(end != std::string::npos);
    const std::string line = text.substr(at, end - at);
    at = end + 2;
    std::size_t cells = 1;
    bool quoted = false;
    for (const char c : line) {
      if (c == '"') quoted = !quoted;
      if (c == ',' && !quoted) ++cells;
    }
    if (columns == 0) columns = cells;
    CHECK(cells == columns);
    ++rows[line.substr(0, line.find(','))];
  }
  const Plan& plan = made.planned.plan;
  CHECK(rows["tensor"] == plan.tensors.size());
  CHECK(rows["operator"] == plan.operators.size());
  CHECK(rows["redistribution"] == plan.redistributions.size());
  CHECK(rows["record"] == 1);
}

TEST_CASE("the strategy file for MindSpore says what the plan says") {
  for (const char* name : {"llama", "llama on a line", "mlp on a wide mesh"}) {
    INFO(name);
    const Case made = planned(wanted_case(name));
    const Plan& plan = made.planned.plan;
    const Exported file = exported(made, "mindspore");
    const json document = json::parse(file.text);
    const json& strategies = document["parallel_strategy_item"];
    REQUIRE(strategies.size() == plan.operators.size());
    for (std::size_t o = 0; o < plan.operators.size(); ++o) {
      const std::string end = plan.operators[o].type + "-op" + std::to_string(o);
      const auto found =
          std::find_if(strategies.items().begin(), strategies.items().end(), [&](const auto& item) {
            return item.key().size() > end.size() &&
                   item.key().compare(
                       item.key().size() - end.size() - 1, std::string::npos, "/" + end) == 0;
          });
      REQUIRE(found != strategies.items().end());
      json wanted = json::array();
      for (const auto& strategy : plan.operators[o].in_strategy) {
        if (strategy) wanted.push_back(*strategy);
      }
      CHECK(found.value()["parallel_strategy"] == wanted);
    }
    std::size_t parameters = 0;
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
      if (made.planned.graph.tensors[t].role != Role::kParameter) continue;
      const auto found = document["parallel_layout_item"].find(plan.tensors[t].name);
      if (found == document["parallel_layout_item"].end()) continue;  // named in a warning
      ++parameters;
      const json& layout = *found;
      CHECK(layout["dev_matrix"] == plan.mesh.shape);
      // whole = local x pieces, in every dimension
      std::int64_t left = 1;
      for (std::size_t d = 0; d < plan.tensors[t].shape.size(); ++d) {
        const int axis = layout["tensor_map"][d];
        const std::size_t ndim = plan.mesh.shape.size();
        const std::int64_t cuts =
            axis < 0 ? 1 : plan.mesh.shape[ndim - 1 - static_cast<std::size_t>(axis)];
        CHECK(layout["tensor_shape"][d].get<std::int64_t>() * cuts == plan.tensors[t].shape[d]);
        left *= cuts;
      }
      const std::int64_t group = layout["opt_weight_shard_size"];
      CHECK((group == 0) == (layout["opt_weight_shard_step"] == 0));
      if (group > 0) CHECK(plan.cluster.devices % (group * left) == 0);
    }
    CHECK(parameters > 0);
  }
}

TEST_CASE("the optimizer's groups of MindSpore have the stride of their axes") {
  Case made = planned(wanted_case("mlp on a wide mesh"));
  PlanTensor* weight = nullptr;
  for (PlanTensor& tensor : made.planned.plan.tensors) {
    if (tensor.name == "w1") weight = &tensor;
  }
  REQUIRE(weight != nullptr);
  for (PlanOperator& op : made.planned.plan.operators) {
    if (op.name == "fc1") op.in_placements[1] = *parse_placements("R,S(1)");
  }
  weight->placements = *parse_placements("R,S(1)");
  weight->optimizer_state = *parse_placements("S(0),S(1)");
  const json layout = json::parse(exported(made, "mindspore").text)["parallel_layout_item"]["w1"];
  CHECK(layout["tensor_map"] == json({-1, 0}));
  CHECK(layout["tensor_shape"] == json({64, 64}));
  CHECK(layout["opt_weight_shard_size"] == 2);
  CHECK(layout["opt_weight_shard_step"] == 4);
}

TEST_CASE("the ShardingPlan for hyper-parallel is Python that says what the plan says") {
  if (!has_python()) return;
  for (const char* name : {"llama", "llama on a line", "mlp on a wide mesh", "llama, inference"}) {
    INFO(name);
    const Case made = planned(wanted_case(name));
    const Plan& plan = made.planned.plan;
    const json python = run_python(exported(made, "hyper-parallel").text);
    CHECK(python["mesh"] == plan.mesh.shape);
    CHECK(python["axes"] == plan.mesh.axes);
    const json older = run_python(exported(made, "hyper-parallel-rfc").text);
    std::size_t parameters = 0;
    for (std::size_t t = 0; t < plan.tensors.size(); ++t) {
      if (made.planned.graph.tensors[t].role != Role::kParameter) continue;
      ++parameters;
      const PlanTensor& tensor = plan.tensors[t];
      CHECK(python["plan"]["plan"].at(tensor.name) == texts(tensor.placements));
      // the same by axes: "None", an axis, or several
      const json& aliases = older["plan"]["parameter"].at(tensor.name);
      REQUIRE(aliases.size() == tensor.tensor_map.size());
      for (std::size_t d = 0; d < aliases.size(); ++d) {
        json wanted = json::array();
        for (const int entry : tensor.tensor_map[d]) {
          if (entry >= 0)
            wanted.push_back(
                plan.mesh.axes[plan.mesh.axes.size() - 1 - static_cast<std::size_t>(entry)]);
        }
        if (wanted.empty()) wanted = "None";
        if (wanted.size() == 1 && wanted.is_array()) wanted = wanted[0];
        CHECK(aliases[d] == wanted);
      }
    }
    CHECK(python["plan"]["plan"].size() == parameters);
    // what enters a module with one input is read in that layout by an operator of the module
    for (const auto& [key, layout] : python["plan"]["input_plan"].items()) {
      if (key == "input" || layout[0].is_array()) continue;
      const std::string scope = key.substr(0, key.size() - std::string(".input").size());
      bool found = false;
      for (std::size_t o = 0; o < plan.operators.size(); ++o) {
        if (made.planned.graph.operators[o].scope.rfind(scope, 0) != 0) continue;
        for (const auto& placements : plan.operators[o].in_placements)
          found = found || (placements && json(texts(*placements)) == layout);
      }
      INFO(key);
      CHECK(found);
    }
    CHECK(python["plan"]["output_plan"].contains("output"));
  }
}

TEST_CASE("Graphviz draws the plan") {
  const Case made = planned(wanted_case("llama"));
  const std::string text = exported(made, "dot").text;
  for (const PlanOperator& op : made.planned.plan.operators)
    CHECK(text.find("[label=\"" + op.name + "\\n") != std::string::npos);
  const auto there =
      test::run_program({"-c", "exec dot -V"}, "", std::chrono::seconds(60), "/bin/sh");
  if (there.exit_code != 0) {
    WARN("dot is not there: the drawing was not rendered");
    return;
  }
  const test::TemporaryFolder folder;
  const std::string file = folder.write("plan.dot", text);
  const auto run = test::run_program(
      {"-c", "exec dot -Tsvg \"$1\"", "sh", file}, "", std::chrono::seconds(120), "/bin/sh");
  CHECK(run.err == "");
  CHECK(run.exit_code == 0);
  CHECK(run.out.find("</svg>") != std::string::npos);
  for (const PlanOperator& op : made.planned.plan.operators)
    CHECK(run.out.find(">" + op.name + "<") != std::string::npos);
}

TEST_CASE("names cannot break out of a format") {
  testing::PlannedCase wanted = wanted_case("mlp");
  std::string text = testing::kMlp;
  for (std::size_t at = 0; (at = text.find("\"fc1\"", at)) != std::string::npos;)
    text.replace(at, 5, R"("f\"c\\1,\n# {}")");
  wanted.graph_text = text;
  const Case made = planned(wanted);
  CHECK(read_graph_document(exported(made, "graph").text, "g.json"));
  CHECK(json::accept(exported(made, "mindspore").text));
  CHECK(exported(made, "csv").text.find("operator,\"f\"\"c\\1,\n# {}\",MatMul") !=
        std::string::npos);
  CHECK(exported(made, "dot").text.find("[label=\"f\\\"c\\\\1,\\n# {}\\nMatMul") !=
        std::string::npos);
  if (has_python()) CHECK(run_python(exported(made, "hyper-parallel").text)["plan"].size() == 3);
}

TEST_CASE("what cannot be said is named, and a plan that does not fit its graph is refused") {
  const Case made = planned(wanted_case("llama, layers recomputed"));
  const auto warned = [&](const char* format, const std::string& part) {
    const Exported result = exported(made, format);
    return std::any_of(
        result.warnings.begin(), result.warnings.end(), [&](const std::string& warning) {
          return warning.find(part) != std::string::npos;
        });
  };
  CHECK(warned("hyper-parallel", "operators that are recomputed"));
  CHECK(warned("mindspore", "operators that are recomputed"));
  CHECK(warned("graph", "in the phase gradient"));
  CHECK(warned("dot", "are not drawn"));

  const auto refuse = [&](const Plan& plan, const std::string& message) {
    for (const Exporter& exporter : exporters()) {
      const auto result = export_plan(exporter.name, plan, made.planned.graph, made.document);
      CHECK((result ? "no error" : to_string(result.error())) == message);
    }
  };
  Plan plan = made.planned.plan;
  plan.operators.clear();
  refuse(plan, "/operators: the plan has no operators to write");
  plan = made.planned.plan;
  plan.graph.fingerprint = "sha256:0";
  refuse(plan,
         "/graph/fingerprint: the plan was made for another graph: expected " +
             made.planned.graph.fingerprint + ", found sha256:0");
  plan = made.planned.plan;
  plan.operators.pop_back();
  refuse(plan,
         "/operators: expected the " + std::to_string(plan.operators.size() + 1) +
             " operators of the graph, found " + std::to_string(plan.operators.size()));
  plan = made.planned.plan;
  plan.tensors.pop_back();
  refuse(plan,
         "/tensors: expected the " + std::to_string(plan.tensors.size() + 1) +
             " tensors of the graph, found " + std::to_string(plan.tensors.size()));
  plan = made.planned.plan;
  plan.tensors[0].placements.pop_back();
  refuse(plan, "/tensors/0/placements: 1 placement for a mesh of 2 axes");
  plan = made.planned.plan;
  plan.operators[0].name = "other";
  refuse(plan,
         "/operators/0: expected operator \"" + made.planned.plan.operators[0].name +
             "\" of the graph with its " +
             std::to_string(made.planned.plan.operators[0].in_placements.size()) +
             " inputs and 1 outputs");
  plan = made.planned.plan;
  plan.redistributions[0].tensor = "other";
  refuse(plan, "/redistributions/0/tensor: the plan has no tensor \"other\"");
  CHECK(export_plan("dott", made.planned.plan, made.planned.graph, made.document).error().message ==
        "there is no format \"dott\"; did you mean \"dot\"?");
}

}  // namespace
}  // namespace meshplan::exporters_test

// SPDX-License-Identifier: Apache-2.0
#include "apps/constraints_reader.h"

#include <random>

#include "graph/graph_document.h"
#include "support/catch.h"

namespace meshplan::constraints_reader_test {

namespace {

/// Two layers of x + fc2(relu(fc1(x))) with a loss.
const std::string kGraph = R"json({
  "schema": "meshplan.graph/1.0", "name": "two_layers",
  "tensors": {
    "x": {"shape": [64, 1024], "dtype": "bf16", "role": "input"},
    "layers.0.mlp.w1": {"shape": [1024, 4096], "dtype": "bf16", "role": "parameter"},
    "layers.0.mlp.w2": {"shape": [4096, 1024], "dtype": "bf16", "role": "parameter"},
    "layers.1.mlp.w1": {"shape": [1024, 4096], "dtype": "bf16", "role": "parameter"},
    "layers.1.mlp.w2": {"shape": [4096, 1024], "dtype": "bf16", "role": "parameter"},
    "loss": {"role": "loss"}
  },
  "operators": [
    {"name": "fc1.0", "type": "MatMul", "inputs": ["x", "layers.0.mlp.w1"], "outputs": ["h0"], "scope": "layers.0.mlp"},
    {"name": "act.0", "type": "Relu", "inputs": ["h0"], "outputs": ["a0"], "scope": "layers.0.mlp.act"},
    {"name": "fc2.0", "type": "MatMul", "inputs": ["a0", "layers.0.mlp.w2"], "outputs": ["y0"], "scope": "layers.0.mlp"},
    {"name": "add.0", "type": "Add", "inputs": ["x", "y0"], "outputs": ["x1"], "scope": "layers.0"},
    {"name": "fc1.1", "type": "MatMul", "inputs": ["x1", "layers.1.mlp.w1"], "outputs": ["h1"], "scope": "layers.1.mlp"},
    {"name": "act.1", "type": "Relu", "inputs": ["h1"], "outputs": ["a1"], "scope": "layers.1.mlp.act"},
    {"name": "fc2.1", "type": "MatMul", "inputs": ["a1", "layers.1.mlp.w2"], "outputs": ["y1"], "scope": "layers.1.mlp"},
    {"name": "add.1", "type": "Add", "inputs": ["x1", "y1"], "outputs": ["x2"], "scope": "layers.1"},
    {"name": "mean", "type": "ReduceMean", "inputs": ["x2"], "outputs": ["loss"], "attributes": {"keepdims": 0}}
  ]
})json";

const Graph& graph() {
  static const Graph result = [] {
    Result<Graph> read = read_graph(kGraph, "g.json", {});
    INFO((read ? "" : to_string(read.error())));
    REQUIRE(read.has_value());
    return *read;
  }();
  return result;
}

TensorId tensor(const std::string& name) {
  for (std::size_t i = 0; i < graph().tensors.size(); ++i) {
    if (graph().tensors[i].name == name) return static_cast<TensorId>(i);
  }
  FAIL("no tensor " << name);
  return {};
}

OperatorId op(const std::string& name) {
  for (std::size_t i = 0; i < graph().operators.size(); ++i) {
    if (graph().operators[i].name == name) return static_cast<OperatorId>(i);
  }
  FAIL("no operator " << name);
  return {};
}

const std::string kMesh = R"json("mesh": {"shape": [4, 8], "axes": ["dp", "tp"]})json";

std::string document(const std::string& body) {
  return R"json({"schema": "meshplan.constraints/1.0")json" + (body.empty() ? "" : ", " + body) +
         "}";
}
std::string on_mesh(const std::string& body) { return document(kMesh + ", " + body); }

Constraints read(const std::string& text) {
  Result<Constraints> result = parse_constraints(text, "k.json");
  INFO((result ? "" : to_string(result.error())));
  REQUIRE(result.has_value());
  return *result;
}

DeviceMesh mesh(std::vector<std::int64_t> shape = {4, 8},
                std::vector<std::string> axes = {"dp", "tp"}) {
  Result<DeviceMesh> result = DeviceMesh::make(std::move(shape), std::move(axes));
  REQUIRE(result.has_value());
  return *result;
}

BoundConstraints bound_by(const std::string& text, const DeviceMesh& on = mesh()) {
  const Constraints constraints = read(text);
  CHECK(check_constraints(constraints, graph()).has_value());
  Result<BoundConstraints> result = bind_constraints(constraints, graph(), on);
  INFO((result ? "" : to_string(result.error())));
  REQUIRE(result.has_value());
  return *result;
}

using Choices = std::vector<std::vector<Placement>>;
const Placement kR = Replicate{};
Placement s(int dim) { return Shard{dim}; }

void check_fault(const Error& error,
                 ErrorCode code,
                 const std::string& pointer,
                 const std::string& message) {
  INFO(to_string(error));
  CHECK(error.code == code);
  CHECK(error.where == "k.json" + (pointer.empty() ? "" : ": " + pointer));
  CHECK(error.message.find(message) != std::string::npos);
}

void check_unreadable(const std::string& text,
                      ErrorCode code,
                      const std::string& pointer,
                      const std::string& message) {
  const Result<Constraints> result = parse_constraints(text, "k.json");
  INFO(text);
  REQUIRE_FALSE(result.has_value());
  check_fault(result.error(), code, pointer, message);
}

/// Readable, but wrong on the graph, already without a mesh.
void check_refused(const std::string& text,
                   ErrorCode code,
                   const std::string& pointer,
                   const std::string& message) {
  INFO(text);
  const Constraints constraints = read(text);
  const Result<void> unbound = check_constraints(constraints, graph());
  REQUIRE_FALSE(unbound.has_value());
  check_fault(unbound.error(), code, pointer, message);
  CHECK_FALSE(bind_constraints(constraints, graph(), mesh()).has_value());
}

/// Wrong on the mesh only.
void check_clash(const std::string& text,
                 ErrorCode code,
                 const std::string& pointer,
                 const std::string& message,
                 const DeviceMesh& on = mesh()) {
  INFO(text);
  const Constraints constraints = read(text);
  CHECK(check_constraints(constraints, graph()).has_value());
  const Result<BoundConstraints> bound = bind_constraints(constraints, graph(), on);
  REQUIRE_FALSE(bound.has_value());
  check_fault(bound.error(), code, pointer, message);
}

}  // namespace

TEST_CASE("constraints may be empty", "[constraints]") {
  CHECK(read(document("")).empty());
  CHECK(bound_by(document("")).empty());
  CHECK(bound_by(on_mesh(R"json("tensors": {}, "operators": {}, "scopes": {})json")).empty());
}

TEST_CASE("placements of a tensor are bound per mesh axis", "[constraints]") {
  const BoundConstraints bound = bound_by(on_mesh(
      R"json("tensors": {"layers.0.mlp.w1": {"placements": ["*", "Shard(-1)"], "priority": 3}, "y0": {"placements": ["S(0)", "P(sum)"]}})json"));
  REQUIRE(bound.tensors.size() == 2);
  const LayoutChoices& w1 = bound.tensors.at(tensor("layers.0.mlp.w1"));
  CHECK(w1.axes == Choices{{}, {s(1)}});
  CHECK(w1.priority == 3);
  CHECK(w1.where == "k.json: /tensors/layers.0.mlp.w1");
  CHECK(w1.allows(0, kR));
  CHECK(w1.allows(1, s(1)));
  CHECK_FALSE(w1.allows(1, kR));
  CHECK(bound.tensors.at(tensor("y0")).axes == Choices{{s(0)}, {Partial{}}});
}

TEST_CASE("dims name the axes per dimension, open ones leave room", "[constraints]") {
  // no mesh in the file: the names are those of the mesh that is planned for
  const BoundConstraints open =
      bound_by(document(R"json("tensors": {"x": {"dims": [["dp"], "open"], "priority": 1}})json"));
  CHECK(open.tensors.at(tensor("x")).axes == Choices{{s(0)}, {kR, s(1)}});
  const BoundConstraints closed =
      bound_by(document(R"json("tensors": {"x": {"dims": [["dp"], []]}})json"));
  CHECK(closed.tensors.at(tensor("x")).axes == Choices{{s(0)}, {kR}});
  const BoundConstraints more =
      bound_by(document(R"json("tensors": {"x": {"dims": [["dp", "open"], []]}})json"));
  CHECK(more.tensors.at(tensor("x")).axes == Choices{{s(0)}, {kR, s(0)}});
  // the order inside a dimension: outermost first; tp before dp is a strided shard of dp
  const BoundConstraints plain =
      bound_by(document(R"json("tensors": {"x": {"dims": [["dp", "tp"], []]}})json"));
  CHECK(plain.tensors.at(tensor("x")).axes == Choices{{s(0)}, {s(0)}});
  const BoundConstraints strided =
      bound_by(document(R"json("tensors": {"x": {"dims": [["tp", "dp"], []]}})json"));
  CHECK(strided.tensors.at(tensor("x")).axes == Choices{{StridedShard{0, 8}}, {s(0)}});
}

TEST_CASE("flattened axes may be used like axes", "[constraints]") {
  const std::string flat =
      R"json("mesh": {"shape": [2, 2, 8], "axes": ["dp_shard", "cp", "tp"], "flatten": {"fsdp": ["dp_shard", "cp"]}})json";
  const DeviceMesh on = mesh({2, 2, 8}, {"dp_shard", "cp", "tp"});
  const BoundConstraints bound =
      bound_by(document(flat + R"json(, "tensors": {"x": {"dims": [["fsdp"], ["tp"]]}})json"), on);
  CHECK(bound.tensors.at(tensor("x")).axes == Choices{{s(0)}, {s(0)}, {s(1)}});
  const BoundConstraints joined = bound_by(
      document(flat + R"json(, "tensors": {"x": {"dims": [["dp_shard_cp"], ["tp"]]}})json"), on);
  CHECK(joined.tensors.at(tensor("x")).axes == Choices{{s(0)}, {s(0)}, {s(1)}});
  check_unreadable(document(flat + R"json(, "tensors": {"x": {"dims": [["fsdp"], ["cp"]]}})json"),
                   ErrorCode::kConflict,
                   "/tensors/x/dims/1/0",
                   "\"cp\" is used twice");
}

TEST_CASE("operators are constrained by placements and by cut counts", "[constraints]") {
  const BoundConstraints bound = bound_by(on_mesh(
      R"json("operators": {"fc1.0": {"in_placements": [["S(0)", "R"], "*"], "out_placements": [["S(0)", "S(1)"]]}, "fc2.0": {"in_strategy": [[4, 8], "*"]}})json"));
  REQUIRE(bound.operators.size() == 2);
  const OperatorChoices& fc1 = bound.operators.at(op("fc1.0"));
  REQUIRE(fc1.inputs.size() == 2);
  REQUIRE(fc1.inputs[0].has_value());
  CHECK(fc1.inputs[0]->axes == Choices{{s(0)}, {kR}});
  CHECK_FALSE(fc1.inputs[1].has_value());
  CHECK(fc1.outputs[0]->axes == Choices{{s(0)}, {s(1)}});
  const OperatorChoices& fc2 = bound.operators.at(op("fc2.0"));
  CHECK(fc2.in_strategy[0] == std::vector<std::int64_t>{4, 8});
  CHECK_FALSE(fc2.in_strategy[1].has_value());
  // cut counts need no mesh in the file, and names may be patterns
  const BoundConstraints all =
      bound_by(document(R"json("operators": {"fc2.*": {"in_strategy": [[8, 1], [1, 1]]}})json"));
  CHECK(all.operators.size() == 2);
  CHECK(all.operators.at(op("fc2.1")).in_strategy[0] == std::vector<std::int64_t>{8, 1});
}

TEST_CASE("scopes constrain parameters, input, output and recomputation", "[constraints]") {
  const BoundConstraints bound = bound_by(on_mesh(
      R"json("scopes": {"layers.*.mlp": {"parameters": {"w1": ["R", "S(1)"], "w2": ["*", "S(0)"]}, "input": ["S(0)", "R"], "output": ["S(0)", "S(1)"], "recompute": true}, "layers.{1..1}": {"recompute": false}})json"));
  for (const char* layer : {"layers.0", "layers.1"}) {
    const std::string name = std::string(layer) + ".mlp.w";
    CHECK(bound.tensors.at(tensor(name + "1")).axes == Choices{{kR}, {s(1)}});
    CHECK(bound.tensors.at(tensor(name + "2")).axes == Choices{{}, {s(0)}});
  }
  // x enters the first block at fc1 only: the residual connection is outside
  CHECK(bound.operators.at(op("fc1.0")).inputs[0]->axes == Choices{{s(0)}, {kR}});
  CHECK(bound.operators.at(op("fc1.1")).inputs[0]->axes == Choices{{s(0)}, {kR}});
  CHECK(bound.operators.count(op("add.0")) == 0);
  CHECK(bound.operators.count(op("act.0")) == 0);
  CHECK(bound.tensors.at(tensor("y0")).axes == Choices{{s(0)}, {s(1)}});
  CHECK(bound.tensors.at(tensor("y1")).axes == Choices{{s(0)}, {s(1)}});
  CHECK(bound.tensors.count(tensor("h0")) == 0);
  CHECK(bound.tensors.count(tensor("x")) == 0);
  // the more specific scope counts
  CHECK(bound.recompute[index(op("act.1"))] == true);
  CHECK(bound.recompute[index(op("add.1"))] == false);
  CHECK_FALSE(bound.recompute[index(op("add.0"))].has_value());
}

TEST_CASE("constraints on one tensor are joined, clashes are named", "[constraints]") {
  const BoundConstraints bound = bound_by(on_mesh(
      R"json("tensors": {"layers.0.mlp.w2": {"placements": ["R", "*"]}}, "scopes": {"layers.0": {"parameters": {"w2": ["*", "S(0)"]}}})json"));
  CHECK(bound.tensors.at(tensor("layers.0.mlp.w2")).axes == Choices{{kR}, {s(0)}});
  check_clash(
      on_mesh(
          R"json("tensors": {"layers.0.mlp.w2": {"placements": ["*", "R"]}}, "scopes": {"layers.*.mlp": {"parameters": {"w2": ["*", "S(0)"]}}})json"),
      ErrorCode::kConflict,
      "/scopes/layers.*.mlp/parameters/w2",
      "S(0) of tensor \"layers.0.mlp.w2\" on mesh axis \"tp\", but k.json: "
      "/tensors/layers.0.mlp.w2 asks for R");
  check_refused(
      on_mesh(
          R"json("scopes": {"layers.*": {"recompute": true}, "layers.{0..1}": {"recompute": false}})json"),
      ErrorCode::kConflict,
      "/scopes/layers.{0..1}/recompute",
      "than k.json: /scopes/layers.*/recompute");
  check_clash(
      on_mesh(
          R"json("operators": {"fc2.0": {"in_placements": [["S(0)", "R"], "*"], "in_strategy": [[4, 8], [8, 1]]}})json"),
      ErrorCode::kConflict,
      "/operators/fc2.0/in_strategy",
      "into 8, but k.json: /operators/fc2.0/in_placements/0 cuts it into 1");
  check_clash(
      on_mesh(
          R"json("operators": {"fc1.0": {"in_placements": [["S(1)", "*"], "*"]}}, "scopes": {"layers.0.mlp": {"input": ["S(0)", "*"]}})json"),
      ErrorCode::kConflict,
      "/scopes/layers.0.mlp/input",
      "on mesh axis \"dp\"");
}

TEST_CASE("constraints that a mesh cannot meet are named", "[constraints]") {
  check_clash(on_mesh(R"json("tensors": {"x": {"placements": ["R", "R"]}})json"),
              ErrorCode::kConflict,
              "/mesh",
              "4x8(dp,tp)",
              mesh({8, 4}));
  check_clash(on_mesh(R"json("tensors": {"x": {"placements": ["R", "R"]}})json"),
              ErrorCode::kConflict,
              "/mesh",
              "the same mesh",
              mesh({4, 8}, {"a", "b"}));
  check_clash(document(R"json("tensors": {"x": {"dims": [["dq"], []]}})json"),
              ErrorCode::kUnknownAxis,
              "/tensors/x",
              "dq");
  check_clash(document(R"json("tensors": {"x": {"dims": [["dp_tp"], ["dp"]]}})json"),
              ErrorCode::kConflict,
              "/tensors/x",
              "used twice");
}

TEST_CASE("cuts that do not divide are refused unless uneven shards are allowed", "[constraints]") {
  const std::string text = document(R"json("tensors": {"x": {"dims": [["a"], []]}})json");
  const DeviceMesh on = mesh({3}, {"a"});
  check_clash(text, ErrorCode::kConflict, "/tensors/x", "64 elements, into 3", on);
  CHECK(bind_constraints(read(text), graph(), on, {true}).has_value());
  check_clash(document(R"json("operators": {"fc1.0": {"in_strategy": [[3, 1], [1, 1]]}})json"),
              ErrorCode::kConflict,
              "/operators/fc1.0/in_strategy",
              "into 3",
              on);
  check_clash(document(R"json("operators": {"fc1.0": {"in_strategy": [[2, 1], [1, 1]]}})json"),
              ErrorCode::kConflict,
              "/operators/fc1.0/in_strategy/0",
              "whole axes",
              mesh());
}

TEST_CASE("names and shapes are checked against the graph", "[constraints]") {
  check_refused(on_mesh(R"json("tensors": {"layers.0.mlp.w3": {"placements": ["R", "R"]}})json"),
                ErrorCode::kMissing,
                "/tensors/layers.0.mlp.w3",
                "did you mean \"layers.0.mlp.w1\"");
  check_refused(on_mesh(R"json("tensors": {"layers.*.w9": {"placements": ["R", "R"]}})json"),
                ErrorCode::kMissing,
                "/tensors/layers.*.w9",
                "no tensor");
  check_refused(on_mesh(R"json("tensors": {"x": {"placements": ["S(2)", "R"]}})json"),
                ErrorCode::kValue,
                "/tensors/x",
                "S(2) cuts a dimension");
  check_refused(on_mesh(R"json("tensors": {"x": {"placements": ["S(-3)", "R"]}})json"),
                ErrorCode::kValue,
                "/tensors/x",
                "cuts a dimension");
  check_refused(document(R"json("tensors": {"x": {"dims": [["dp"]]}})json"),
                ErrorCode::kValue,
                "/tensors/x",
                "2 dimensions, but 1");
  check_refused(document(R"json("operators": {"fc1.9": {"in_strategy": [[1, 1], [1, 1]]}})json"),
                ErrorCode::kMissing,
                "/operators/fc1.9",
                "did you mean");
  check_refused(document(R"json("operators": {"fc1.0": {"in_strategy": [[1, 1]]}})json"),
                ErrorCode::kValue,
                "/operators/fc1.0/in_strategy",
                "2 inputs, but 1");
  check_refused(document(R"json("operators": {"fc1.0": {"in_strategy": [[1, 1], [1]]}})json"),
                ErrorCode::kValue,
                "/operators/fc1.0/in_strategy/1",
                "2 dimensions, but cuts of 1");
  check_refused(on_mesh(R"json("operators": {"fc1.0": {"out_placements": []}})json"),
                ErrorCode::kValue,
                "/operators/fc1.0/out_placements",
                "1 outputs, but 0");
  check_refused(on_mesh(R"json("scopes": {"layer.*": {"recompute": true}})json"),
                ErrorCode::kMissing,
                "/scopes/layer.*",
                "did you mean \"layers");
  check_refused(
      on_mesh(R"json("scopes": {"layers.*.mlp": {"parameters": {"w3": ["R", "R"]}}})json"),
      ErrorCode::kMissing,
      "/scopes/layers.*.mlp/parameters/w3",
      "did you mean \"w1\"");
  check_clash(on_mesh(R"json("tensors": {"x": {"placements": ["P(sum)", "R"]}})json"),
              ErrorCode::kValue,
              "/tensors/x",
              "role input and cannot be P(sum)");
}

TEST_CASE("faults of a constraints file are named with their place", "[constraints]") {
  check_unreadable("[]", ErrorCode::kType, "", "expected an object");
  check_unreadable(document(R"json("tensor": {})json"),
                   ErrorCode::kValue,
                   "/tensor",
                   "did you mean \"tensors\"");
  check_unreadable(
      document(R"json("tensors": [])json"), ErrorCode::kType, "/tensors", "expected an object");
  check_unreadable(document(R"json("tensors": {"x": 3})json"),
                   ErrorCode::kType,
                   "/tensors/x",
                   "expected an object");
  check_unreadable(document(R"json("tensors": {"x": {}})json"),
                   ErrorCode::kMissing,
                   "/tensors/x",
                   "\"placements\" or \"dims\"");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"placements": ["R", "R"], "dims": []}})json"),
                   ErrorCode::kConflict,
                   "/tensors/x",
                   "either");
  check_unreadable(document(R"json("tensors": {"x": {"placements": ["R", "R"]}})json"),
                   ErrorCode::kMissing,
                   "/tensors/x/placements",
                   "need a \"mesh\"");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"placements": ["R"]}})json"),
                   ErrorCode::kValue,
                   "/tensors/x/placements",
                   "2 mesh axes, found 1");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"placements": ["R", "Q(1)"]}})json"),
                   ErrorCode::kValue,
                   "/tensors/x/placements/1",
                   "\"*\"");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"placements": ["R", 1]}})json"),
                   ErrorCode::kType,
                   "/tensors/x/placements/1",
                   "expected a string");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"dims": [["dq"], []]}})json"),
                   ErrorCode::kUnknownAxis,
                   "/tensors/x/dims/0/0",
                   "no axis \"dq\"");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"dims": [["dp"], ["dp"]]}})json"),
                   ErrorCode::kConflict,
                   "/tensors/x/dims/1/0",
                   "used twice");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"dims": [["dp"], "closed"]}})json"),
                   ErrorCode::kValue,
                   "/tensors/x/dims/1",
                   "\"open\"");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"dims": [["open", "dp"], []]}})json"),
                   ErrorCode::kOrder,
                   "/tensors/x/dims/0/1",
                   "last entry");
  check_unreadable(on_mesh(R"json("tensors": {"x": {"dims": [], "priority": -1}})json"),
                   ErrorCode::kValue,
                   "/tensors/x/priority",
                   "");
  check_unreadable(document(R"json("operators": {"fc1.0": {}})json"),
                   ErrorCode::kMissing,
                   "/operators/fc1.0",
                   "in_strategy");
  check_unreadable(document(R"json("operators": {"fc1.0": {"in_strategy": [[0]]}})json"),
                   ErrorCode::kValue,
                   "/operators/fc1.0/in_strategy/0/0",
                   "");
  check_unreadable(document(R"json("operators": {"fc1.0": {"strategy": [[1]]}})json"),
                   ErrorCode::kValue,
                   "/operators/fc1.0/strategy",
                   "");
  check_unreadable(document(R"json("scopes": {"a..b": {}})json"),
                   ErrorCode::kValue,
                   "/scopes/a..b",
                   "empty component");
  check_unreadable(document(R"json("scopes": {"a": {"recompute": 1}})json"),
                   ErrorCode::kType,
                   "/scopes/a/recompute",
                   "");
  check_unreadable(document(R"json("scopes": {"a": {"input": ["R", "R"]}})json"),
                   ErrorCode::kMissing,
                   "/scopes/a/input",
                   "need a \"mesh\"");
  check_unreadable(document(R"json("mesh": {"shape": [4, 8], "axes": ["dp"]})json"),
                   ErrorCode::kValue,
                   "/mesh",
                   "2 sizes, but 1");
  check_unreadable(document(R"json("mesh": {"shape": [4, 8], "axes": ["dp", "dp"]})json"),
                   ErrorCode::kDuplicate,
                   "/mesh/axes/1",
                   "dp");
  check_unreadable(
      document(R"json("mesh": {"shape": [4], "axes": ["dp"], "flatten": {"dp": ["dp"]}})json"),
      ErrorCode::kConflict,
      "/mesh/flatten/dp",
      "not free");
  check_unreadable(
      document(R"json("mesh": {"shape": [4], "axes": ["dp"], "flatten": {"f": ["dq"]}})json"),
      ErrorCode::kUnknownAxis,
      "/mesh/flatten/f/0",
      "dq");
  check_unreadable(
      document(
          R"json("mesh": {"shape": [4, 2], "axes": ["a", "b"], "flatten": {"f": ["b", "a"]}})json"),
      ErrorCode::kOrder,
      "/mesh/flatten/f",
      "order of the mesh");
  check_unreadable(
      document(R"json("mesh": {"shape": [4, 2], "axes": ["a", "b"], "flatten": {"f": []}})json"),
      ErrorCode::kValue,
      "/mesh/flatten/f",
      "at least one");
}

TEST_CASE("no text makes the constraints reader fail badly", "[constraints]") {
  const std::string whole = on_mesh(
      R"json("tensors": {"x": {"dims": [["dp"], "open"], "priority": 0}, "y0": {"placements": ["S(0)", "P(sum)"]}}, "operators": {"fc2.0": {"in_strategy": [[4, 8], [8, 1]]}, "fc1.0": {"in_placements": [["S(0)", "R"], "*"]}}, "scopes": {"layers.*.mlp": {"parameters": {"w2": ["*", "S(0)"]}, "input": ["S(0)", "R"], "recompute": true}})json");
  CHECK(bound_by(whole).tensors.size() == 4);
  const std::uint64_t seed = 31;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3000; ++round) {
    std::string text = whole;
    for (std::uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random() % 128);
      } else {
        text.erase(at, random() % 10);
      }
    }
    const Result<Constraints> constraints = parse_constraints(text, "k.json");
    if (!constraints) {
      CHECK_FALSE(constraints.error().message.empty());
      continue;
    }
    const Result<BoundConstraints> bound = bind_constraints(*constraints, graph(), mesh());
    if (!bound) CHECK_FALSE(bound.error().message.empty());
  }
}

}  // namespace meshplan::constraints_reader_test

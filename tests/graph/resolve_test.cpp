// SPDX-License-Identifier: Apache-2.0
// From documents to graphs: order, types, roles, gradients, and every way in which it fails.
#include <algorithm>
#include <random>
#include <string>

#include "graph/graph_document.h"
#include "support/catch.h"

namespace meshplan::resolve_test {
namespace {

const GraphOptions kTraining;

/// A document around "dimensions", "tensors" and "operators" in JSON with single quotes.
std::string document_text(const std::string& members) {
  std::string text = "{\"schema\": \"meshplan.graph/1.0\", " + members + "}";
  std::replace(text.begin(), text.end(), '\'', '"');
  return text;
}

Graph graph_of(const std::string& members, const GraphOptions& options = kTraining) {
  Result<Graph> graph = read_graph(document_text(members), "g.json", options);
  if (!graph) FAIL(to_string(graph.error()));
  return *std::move(graph);
}

std::string error_of(const std::string& members, const GraphOptions& options = kTraining) {
  const Result<Graph> graph = read_graph(document_text(members), "g.json", options);
  INFO(members);
  REQUIRE_FALSE(graph.has_value());
  const std::string message = to_string(graph.error());
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

const Tensor& tensor_named(const Graph& graph, const std::string& name) {
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.name == name) return tensor;
  }
  FAIL("no tensor " << name);
  return graph.tensors.front();
}

bool has_tensor(const Graph& graph, const std::string& name) {
  return std::any_of(graph.tensors.begin(), graph.tensors.end(), [&](const Tensor& tensor) {
    return tensor.name == name;
  });
}

std::string names_of(const std::vector<Operator>& operators) {
  std::string names;
  for (const Operator& op : operators) names += (names.empty() ? "" : " ") + op.name;
  return names;
}

const std::string kMlp = R"(
  'dimensions': {'batch': {'size': 64}},
  'tensors': {
    'x': {'shape': ['batch', 16], 'dtype': 'bf16', 'role': 'input'},
    'w1': {'shape': [16, 32], 'dtype': 'bf16', 'role': 'parameter'},
    'w2': {'shape': [32, 8], 'dtype': 'bf16', 'role': 'parameter'},
    'labels': {'shape': ['batch'], 'dtype': 'int64', 'role': 'input'},
    'loss': {'dtype': 'fp32', 'role': 'loss'}
  },
  'operators': [
    {'name': 'ce', 'type': 'SoftmaxCrossEntropyLoss', 'inputs': ['y', 'labels'], 'outputs': ['loss']},
    {'name': 'fc2', 'type': 'MatMul', 'inputs': ['a', 'w2'], 'outputs': ['y'], 'scope': 'mlp'},
    {'name': 'act', 'type': 'Relu', 'inputs': ['h'], 'outputs': ['a']},
    {'name': 'fc1', 'type': 'MatMul', 'inputs': ['x', 'w1'], 'outputs': ['h']}
  ])";

TEST_CASE("Operators are sorted, types inferred, uses and gradients found") {
  const Graph graph = graph_of(kMlp);
  CHECK(names_of(graph.operators) == "fc1 act fc2 ce");
  CHECK(tensor_named(graph, "h").shape == Shape{64, 32});
  CHECK(tensor_named(graph, "y").shape == Shape{64, 8});
  CHECK(tensor_named(graph, "y").dtype == DType::kBf16);
  CHECK(tensor_named(graph, "loss").shape == Shape{});
  CHECK(tensor_named(graph, "loss").dtype == DType::kFp32);
  CHECK(tensor_named(graph, "loss").role == Role::kLoss);
  CHECK(tensor_named(graph, "h").producer == OperatorId{0});
  CHECK_FALSE(tensor_named(graph, "x").producer.has_value());
  CHECK(tensor_named(graph, "labels").uses == std::vector<Use>{{OperatorId{3}, 1}});
  CHECK(graph.op(OperatorId{2}).scope == "mlp");
  for (const char* name : {"w1", "w2", "h", "a", "y", "loss"}) {
    CHECK(tensor_named(graph, name).has_gradient);
  }
  CHECK_FALSE(tensor_named(graph, "x").has_gradient);
  CHECK_FALSE(tensor_named(graph, "labels").has_gradient);
  CHECK(tensor_named(graph, "w1").trainable);
  CHECK(graph.training);
  REQUIRE(graph.outputs.size() == 1);  // none named: what nobody reads
  CHECK(graph.tensor(graph.outputs[0]).name == "loss");
  for (const Operator& op : graph.operators) CHECK(op.rule != nullptr);
}

TEST_CASE("The order of a document's parts does not change the graph") {
  Result<GraphDocument> document = read_graph_document(document_text(kMlp), "g.json");
  REQUIRE(document.has_value());
  const Result<Graph> first = resolve(*document, kTraining);
  REQUIRE(first.has_value());
  std::mt19937 random(11);
  for (int i = 0; i < 20; ++i) {
    std::shuffle(document->operators.begin(), document->operators.end(), random);
    std::shuffle(document->tensors.begin(), document->tensors.end(), random);
    const Result<Graph> again = resolve(*document, kTraining);
    REQUIRE(again.has_value());
    CHECK(names_of(again->operators) == names_of(first->operators));
    CHECK(again->fingerprint == first->fingerprint);
    for (std::size_t t = 0; t < first->tensors.size(); ++t) {
      CHECK(again->tensors[t].name == first->tensors[t].name);
      CHECK(again->tensors[t].uses == first->tensors[t].uses);
    }
  }
}

TEST_CASE("Operators that are free at the same time come by name") {
  const Graph graph = graph_of(R"(
    'tensors': {'x': {'shape': [4], 'dtype': 'fp32', 'role': 'input'}},
    'operators': [
      {'name': 'd', 'type': 'Add', 'inputs': ['b1', 'c1'], 'outputs': ['d1']},
      {'name': 'c', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['c1']},
      {'name': 'b', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['b1']},
      {'name': 'a', 'type': 'Relu', 'inputs': ['d1'], 'outputs': ['a1']},
      {'name': 'e', 'type': 'Add', 'inputs': ['x', 'x'], 'outputs': ['e1']}])");
  CHECK(names_of(graph.operators) == "b c d a e");
  CHECK(tensor_named(graph, "x").uses.size() == 4);
  CHECK(graph.outputs.size() == 2);
}

TEST_CASE("Equal operators share one rule") {
  const Graph graph = graph_of(R"(
    'tensors': {'x': {'shape': [4, 4], 'dtype': 'fp32', 'role': 'input'}},
    'operators': [
      {'name': 'a', 'type': 'Softmax', 'inputs': ['x'], 'outputs': ['a1'], 'attributes': {'axis': 1}},
      {'name': 'b', 'type': 'Softmax', 'inputs': ['a1'], 'outputs': ['b1'], 'attributes': {'axis': 1}},
      {'name': 'c', 'type': 'Softmax', 'inputs': ['b1'], 'outputs': ['c1'], 'attributes': {'axis': 0}}])");
  CHECK(graph.operators[0].rule == graph.operators[1].rule);
  CHECK(graph.operators[0].rule != graph.operators[2].rule);
}

TEST_CASE("Micro-batches divide the dimension batch wherever it stands") {
  const std::string members = R"(
    'dimensions': {'batch': {'size': 12}, 'seq': {'size': 5}},
    'tensors': {'x': {'shape': ['batch', 'seq', 4], 'dtype': 'fp32', 'role': 'input'},
                'y': {'shape': ['2*batch*seq', 2]}},
    'operators': [{'name': 'r', 'type': 'Reshape', 'inputs': ['x'], 'outputs': ['y'],
                   'attributes': {'shape': ['batch * seq*2', 2]}}])";
  CHECK(tensor_named(graph_of(members), "y").shape == Shape{120, 2});
  GraphOptions options;
  options.microbatches = 4;
  const Graph graph = graph_of(members, options);
  CHECK(tensor_named(graph, "x").shape == Shape{3, 5, 4});
  CHECK(tensor_named(graph, "y").shape == Shape{30, 2});
  CHECK(std::get<std::vector<std::int64_t>>(graph.operators[0].attributes.at("shape")) ==
        std::vector<std::int64_t>{30, 2});
  options.microbatches = 5;
  CHECK(error_of(members, options) ==
        "g.json: /dimensions/batch/size: the batch of 12 does not divide into 5 micro-batches");
  CHECK(error_of(R"('tensors': {'x': {'shape': [4], 'dtype': 'fp32', 'role': 'input'}},
    'operators': [{'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']}])",
                 options) ==
        "g.json: /dimensions: there is no dimension \"batch\" to divide into 5 micro-batches");
}

TEST_CASE("Gradients exist only between a trainable parameter and a loss") {
  const Graph graph = graph_of(R"(
    'tensors': {
      'ids': {'shape': [6], 'dtype': 'int64', 'role': 'input'},
      'table': {'shape': [10, 4], 'dtype': 'fp32', 'role': 'parameter', 'trainable': false},
      'w': {'shape': [4, 4], 'dtype': 'fp32', 'role': 'parameter'},
      'unused': {'shape': [4, 4], 'dtype': 'fp32', 'role': 'parameter'},
      'mask': {'shape': [6, 4], 'dtype': 'fp32', 'role': 'constant'},
      'loss': {'role': 'loss'}
    },
    'operators': [
      {'name': 'embed', 'type': 'Gather', 'inputs': ['table', 'ids'], 'outputs': ['e']},
      {'name': 'norm', 'type': 'Softmax', 'inputs': ['e'], 'outputs': ['n']},
      {'name': 'fc', 'type': 'MatMul', 'inputs': ['n', 'w'], 'outputs': ['h']},
      {'name': 'masked', 'type': 'Mul', 'inputs': ['h', 'mask'], 'outputs': ['m']},
      {'name': 'big', 'type': 'Greater', 'inputs': ['m', 'mask'], 'outputs': ['flags']},
      {'name': 'aside', 'type': 'MatMul', 'inputs': ['n', 'unused'], 'outputs': ['s']},
      {'name': 'mean', 'type': 'ReduceMean', 'inputs': ['m'], 'outputs': ['loss'], 'attributes': {'keepdims': 0}}
    ], 'outputs': ['m', 's'])");
  for (const char* name : {"w", "h", "m", "loss"}) CHECK(tensor_named(graph, name).has_gradient);
  // frozen weights and what comes before the first trainable one, constants, booleans, and a branch
  // that no loss reads
  for (const char* name : {"ids", "table", "e", "n", "mask", "flags", "unused", "s"}) {
    INFO(name);
    CHECK_FALSE(tensor_named(graph, name).has_gradient);
  }
  CHECK(graph.outputs.size() == 2);
}

TEST_CASE("Without a loss, gradients start at every float output") {
  const Graph graph = graph_of(R"(
    'tensors': {
      'x': {'shape': [4, 4], 'dtype': 'fp32', 'role': 'input'},
      'w': {'shape': [4, 4], 'dtype': 'fp32', 'role': 'parameter'},
      'v': {'shape': [4, 4], 'dtype': 'fp32', 'role': 'parameter'}
    },
    'operators': [
      {'name': 'a', 'type': 'MatMul', 'inputs': ['x', 'w'], 'outputs': ['y']},
      {'name': 'b', 'type': 'MatMul', 'inputs': ['x', 'v'], 'outputs': ['z']}
    ], 'outputs': ['y'])");
  CHECK(tensor_named(graph, "w").has_gradient);
  CHECK(tensor_named(graph, "y").has_gradient);
  CHECK_FALSE(tensor_named(graph, "v").has_gradient);
  CHECK_FALSE(tensor_named(graph, "z").has_gradient);
}

TEST_CASE("Inference drops the loss and what only it needs") {
  GraphOptions inference;
  inference.training = false;
  const Graph graph = graph_of(kMlp, inference);
  CHECK(names_of(graph.operators) == "fc1 act fc2");
  CHECK_FALSE(has_tensor(graph, "loss"));
  CHECK_FALSE(has_tensor(graph, "labels"));
  CHECK_FALSE(graph.training);
  REQUIRE(graph.outputs.size() == 1);
  CHECK(graph.tensor(graph.outputs[0]).name == "y");
  CHECK(tensor_named(graph, "y").uses.empty());
  for (const Tensor& tensor : graph.tensors) CHECK_FALSE(tensor.has_gradient);
  // a loss that is named as an output is dropped all the same
  CHECK(names_of(graph_of(kMlp + ", 'outputs': ['loss']", inference).operators) == "fc1 act fc2");
  // an output keeps what it needs, even where the loss reads it too
  const Graph kept = graph_of(R"(
    'tensors': {'x': {'shape': [4], 'dtype': 'fp32', 'role': 'input'}, 'l': {'role': 'loss'}},
    'operators': [
      {'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']},
      {'name': 'b', 'type': 'Exp', 'inputs': ['y'], 'outputs': ['z']},
      {'name': 'c', 'type': 'Log', 'inputs': ['z'], 'outputs': ['t']},
      {'name': 'd', 'type': 'ReduceSum', 'inputs': ['t'], 'outputs': ['l']},
      {'name': 'e', 'type': 'Tanh', 'inputs': ['y'], 'outputs': ['dead_end']}
    ], 'outputs': ['z', 'l'])",
                              inference);
  CHECK(names_of(kept.operators) == "a b e");
  REQUIRE(kept.outputs.size() == 1);
  CHECK(kept.tensor(kept.outputs[0]).name == "z");
  // a loss that something else reads stays as an activation
  const Graph read = graph_of(R"(
    'tensors': {'x': {'shape': [4], 'dtype': 'fp32', 'role': 'input'}, 'l': {'role': 'loss'}},
    'operators': [
      {'name': 'a', 'type': 'ReduceSum', 'inputs': ['x'], 'outputs': ['l']},
      {'name': 'b', 'type': 'Exp', 'inputs': ['l'], 'outputs': ['m']}
    ], 'outputs': ['m'])",
                              inference);
  CHECK(tensor_named(read, "l").role == Role::kActivation);
}

TEST_CASE("Inference without named outputs keeps the model and drops what looks at labels") {
  GraphOptions inference;
  inference.training = false;
  const auto left = [&](const std::string& operators) {
    const Graph graph = graph_of(
        "'tensors': {'x': {'shape': [4, 8], 'dtype': 'fp32', 'role': 'input'}, "
        "'target': {'shape': [4, 8], 'dtype': 'fp32', 'role': 'input'}, "
        "'w': {'shape': [8, 8], 'dtype': 'fp32', 'role': 'parameter'}, 'l': {'role': 'loss'}}, "
        "'operators': [" +
            operators + "]",
        inference);
    std::string outputs;
    for (const TensorId output : graph.outputs) outputs += " " + graph.tensor(output).name;
    return names_of(graph.operators) + " ->" + outputs;
  };
  const std::string fc =
      "{'name': 'fc', 'type': 'MatMul', 'inputs': ['x', 'w'], 'outputs': ['y']}, ";
  const std::string mean =
      "{'name': 'mean', 'type': 'ReduceMean', 'inputs': ['q'], 'outputs': ['l']}";
  // squared error: the difference and its square look at the target
  CHECK(left(fc + R"({'name': 'sub', 'type': 'Sub', 'inputs': ['y', 'target'], 'outputs': ['d']},
                     {'name': 'sq', 'type': 'Mul', 'inputs': ['d', 'd'], 'outputs': ['q']},)" +
             mean) == "fc -> y");
  // an activation at the end belongs to the model; preparing the target does not
  CHECK(left(fc + R"({'name': 'act', 'type': 'Sigmoid', 'inputs': ['y'], 'outputs': ['a']},
                     {'name': 'soft', 'type': 'Softmax', 'inputs': ['target'], 'outputs': ['t']},
                     {'name': 'err', 'type': 'Mul', 'inputs': ['a', 't'], 'outputs': ['q']},)" +
             mean) == "fc act -> a");
  // two stages of the model, and a side result that nobody reads
  CHECK(left(fc + R"({'name': 'fc2', 'type': 'MatMul', 'inputs': ['y', 'w'], 'outputs': ['q']},
                     {'name': 'side', 'type': 'Exp', 'inputs': ['y'], 'outputs': ['s']},)" +
             mean) == "fc fc2 side -> q s");
  // no parameters at all: the loss alone goes
  CHECK(left("{'name': 'e', 'type': 'Exp', 'inputs': ['x'], 'outputs': ['q']}, " + mean) ==
        "e -> q");
}

TEST_CASE("Types of one's own are declared by a rule, once or in place") {
  const Graph graph = graph_of(R"(
    'operator_types': {'Mix': {'rule': 'b s h, h f -> b s f ; sum:h', 'flops': '2*b*s*h*f'}},
    'tensors': {'x': {'shape': [2, 3, 4], 'dtype': 'bf16', 'role': 'input'},
                'w': {'shape': [4, 5], 'dtype': 'bf16', 'role': 'parameter'}},
    'operators': [
      {'name': 'a', 'type': 'Mix', 'inputs': ['x', 'w'], 'outputs': ['y']},
      {'name': 'b', 'type': 'Custom', 'inputs': ['y'], 'outputs': ['z'], 'rule': 'b s f -> b s f'}])");
  CHECK(tensor_named(graph, "y").shape == Shape{2, 3, 5});
  CHECK(tensor_named(graph, "z").shape == Shape{2, 3, 5});
  const std::string x = "'tensors': {'x': {'shape': [2], 'dtype': 'bf16', 'role': 'input'}}, ";
  CHECK(error_of(x + R"('operators': [{'name': 'a', 'type': 'Relu', 'inputs': ['x'],
        'outputs': ['y'], 'rule': 'b -> b'}])")
            .find("g.json: /operators/0/rule: the type \"Relu\" is built in") == 0);
  CHECK(error_of(x + R"('operators': [{'name': 'a', 'type': 'Relu', 'inputs': ['x'],
        'outputs': ['y'], 'flops': '2'}])")
            .find("g.json: /operators/0/flops: ") == 0);
  CHECK(error_of(x + R"('operator_types': {'Relu': {'rule': 'b -> b'}}, 'operators': [])")
            .find("g.json: /operator_types/Relu: the type is built in") == 0);
  CHECK(error_of(x + R"('operators': [{'name': 'a', 'type': 'Custom', 'inputs': ['x'],
        'outputs': ['y'], 'rule': 'b ->> b'}])")
            .find("g.json: /operators/0: operator \"a\" (Custom): ") == 0);
}

TEST_CASE("An unknown type is an error that says what to do, or is replicated on request") {
  const std::string unknown = R"(
    'operator_types': {'FancyNorm': {'rule': 'b -> b'}},
    'tensors': {'x': {'shape': [8], 'dtype': 'bf16', 'role': 'input'}TENSOR},
    'operators': [{'name': 'a', 'type': 'TYPE', 'inputs': ['x'], 'outputs': ['y']},
                  {'name': 'b', 'type': 'Relu', 'inputs': ['y'], 'outputs': ['z']}])";
  const auto with = [&](const std::string& type, const std::string& tensor) {
    std::string text = unknown;
    text.replace(text.find("TYPE"), 4, type);
    text.replace(text.find("TENSOR"), 6, tensor);
    return text;
  };
  const std::string message = error_of(with("MatMull", ""));
  CHECK(message.find("g.json: /operators/0/type: operator \"a\": operator type \"MatMull\" is not "
                     "known; did you mean \"MatMul\"?") == 0);
  CHECK(message.find("--unknown-operators replicate") != std::string::npos);
  CHECK(error_of(with("FancyNrm", "")).find("did you mean \"FancyNorm\"?") != std::string::npos);
  CHECK(error_of(with("Foo", "")).find("\"Foo\" is not known. Declare it with a rule") !=
        std::string::npos);
  GraphOptions replicate;
  replicate.replicate_unknown = true;
  CHECK(error_of(with("Foo", ""), replicate) ==
        "g.json: /tensors/y: operator \"a\" (Foo) is of an unknown type, so its result \"y\" needs "
        "a shape and a dtype here");
  const Graph graph = graph_of(with("Foo", ", 'y': {'shape': [3, 2], 'dtype': 'fp32'}"), replicate);
  CHECK(tensor_named(graph, "z").shape == Shape{3, 2});
  CHECK(graph.operators[0].rule->factors.empty());
}

TEST_CASE("Names that do not fit together are errors with their place") {
  const auto op = [](const std::string& rest) {
    return "'tensors': {'x': {'shape': [2], 'dtype': 'fp32', 'role': 'input'}, "
           "'w9a': {'shape': [2], 'dtype': 'fp32', 'role': 'parameter'}}, 'operators': [" +
           rest + "]";
  };
  CHECK(error_of(op(R"({'name': 'a', 'type': 'Add', 'inputs': ['x', 'w9'], 'outputs': ['y']})")) ==
        "g.json: /operators/0/inputs/1: tensor \"w9\" is not declared; did you mean \"w9a\"?");
  CHECK(error_of(op(R"({'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']},
                       {'name': 'a', 'type': 'Relu', 'inputs': ['y'], 'outputs': ['z']})")) ==
        "g.json: /operators/1/name: operator \"a\" is declared twice, first at /operators/0");
  CHECK(error_of(op(R"({'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']},
                       {'name': 'b', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']})")) ==
        "g.json: /operators/1/outputs/0: tensor \"y\" is made twice: by operator \"a\" and by "
        "operator \"b\"");
  CHECK(error_of(op(R"({'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['w9a']})")) ==
        "g.json: /operators/0/outputs/0: tensor \"w9a\" has the role \"parameter\", which no "
        "operator may make");
  CHECK(error_of(op(R"({'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['yy']})") +
                 ", 'outputs': ['yyy']") ==
        "g.json: /outputs/0: tensor \"yyy\" is not declared; did you mean \"yy\"?");
  CHECK(error_of(op(R"({'name': 'a', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']})") +
                 ", 'outputs': ['y', 'y']") == "g.json: /outputs/1: tensor \"y\" is named twice");
  CHECK(error_of(op("")) == "g.json: /operators: the graph has no operators");
}

TEST_CASE("A cycle names its operators and nothing else") {
  const std::string tensors =
      "'tensors': {'x': {'shape': [2], 'dtype': 'fp32', 'role': 'input'}}, ";
  CHECK(error_of(tensors + R"('operators': [
      {'name': 'start', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['s']},
      {'name': 'after', 'type': 'Relu', 'inputs': ['r'], 'outputs': ['t']},
      {'name': 'a', 'type': 'Add', 'inputs': ['s', 'r'], 'outputs': ['p']},
      {'name': 'b', 'type': 'Relu', 'inputs': ['p'], 'outputs': ['q']},
      {'name': 'c', 'type': 'Relu', 'inputs': ['q'], 'outputs': ['r']}])") ==
        "g.json: /operators/2: the operators form a cycle: \"a\" -> \"b\" -> \"c\" -> \"a\"");
  CHECK(error_of(tensors + R"('operators': [
      {'name': 'self', 'type': 'Add', 'inputs': ['x', 'y'], 'outputs': ['y']}])") ==
        "g.json: /operators/0: the operators form a cycle: \"self\" -> \"self\"");
  std::string ring;
  for (int i = 0; i < 1000; ++i) {
    ring += std::string(i == 0 ? "" : ",") + "{'name': 'o" + std::to_string(i) +
            "', 'type': 'Relu', 'inputs': ['t" + std::to_string((i + 999) % 1000) +
            "'], 'outputs': ['t" + std::to_string(i) + "']}";
  }
  const std::string message = error_of("'tensors': {}, 'operators': [" + ring + "]");
  CHECK(message.find("... (990 more) -> ") != std::string::npos);
}

TEST_CASE("Shapes and dtypes that do not fit are errors with their place") {
  const auto mlp = [](const std::string& old, const std::string& replacement) {
    std::string text = kMlp;
    text.replace(text.find(old), old.size(), replacement);
    return error_of(text);
  };
  CHECK(mlp("'loss': {'dtype'", "'h': {'shape': ['batch', 31]}, 'loss': {'dtype'") ==
        "g.json: /tensors/h/shape: the shape given is [64, 31], but operator \"fc1\" (MatMul) "
        "makes [64, 32]");
  CHECK(mlp("'loss': {'dtype'", "'h': {'dtype': 'int8'}, 'loss': {'dtype'") ==
        "g.json: /tensors/h/dtype: the dtype given is int8, but operator \"fc1\" (MatMul) makes "
        "bf16");
  CHECK(mlp("'w1': {'shape': [16, 32]", "'w1': {'shape': [17, 32]")
            .find("g.json: /operators/3: operator \"fc1\" (MatMul): ") == 0);
  CHECK(mlp("['x', 'w1']", "['x']").find("g.json: /operators/3: operator \"fc1\" (MatMul): ") == 0);
  CHECK(mlp("'outputs': ['a']", "'outputs': ['a', 'b']")
            .find("g.json: /operators/2: operator \"act\" (Relu): Relu has 1 output(s), got 2") ==
        0);
  CHECK(mlp("['batch', 16]", "['batc', 16]") ==
        "g.json: /tensors/x/shape/0: dimension \"batc\" is not declared; did you mean \"batch\"?");
  for (const char* bad : {"'batch*'",
                          "''",
                          "'*batch'",
                          "'2 batch'",
                          "'-1'",
                          "'0'",
                          "'batch+1'",
                          "'0*batch'",
                          "'1.5'"}) {
    CHECK(mlp("['batch', 16]", "[" + std::string(bad) + ", 16]")
              .find("g.json: /tensors/x/shape/0: ") == 0);
  }
  CHECK(mlp("'dtype': 'bf16', 'role': 'input'", "'role': 'input'") ==
        "g.json: /tensors/x: the key \"dtype\" is missing; a tensor of role \"input\" needs it");
  CHECK(mlp("'shape': [16, 32], ", "") ==
        "g.json: /tensors/w1: the key \"shape\" is missing; a tensor of role \"parameter\" needs "
        "it");
  CHECK(mlp("'dtype': 'bf16', 'role': 'parameter'", "'dtype': 'int8', 'role': 'parameter'") ==
        "g.json: /tensors/w1/dtype: a parameter of dtype int8 cannot be trained; give it "
        "\"trainable\": false");
  CHECK(mlp("'dtype': 'bf16', 'role': 'input'", "'dtype': 'bf16'")
            .find("g.json: /tensors/x: no operator makes this activation; give it the role ") == 0);
}

TEST_CASE("Products beyond 64 bits are refused") {
  const auto with_shape = [](const std::string& shape) {
    return error_of(
        "'dimensions': {'a': {'size': 4294967296}, 'b': {'size': 4294967296}}, "
        "'tensors': {'x': {'shape': " +
        shape +
        ", 'dtype': 'fp32', 'role': 'input'}}, "
        "'operators': [{'name': 'o', 'type': 'Relu', 'inputs': ['x'], 'outputs': ['y']}]");
  };
  CHECK(with_shape("['a*b']") ==
        "g.json: /tensors/x/shape/0: the product \"a*b\" does not fit into 64 bits");
  CHECK(with_shape("['a', 'b']") ==
        "g.json: /tensors/x/shape: the tensor is larger than 2^62 bytes; check its shape");
  CHECK(with_shape("[9223372036854775807, 9223372036854775807, 4]").find("2^62") !=
        std::string::npos);
  CHECK(with_shape("['99999999999999999999']") ==
        "g.json: /tensors/x/shape/0: the number does not fit into 64 bits");
  std::string ones;
  for (int i = 0; i < 33; ++i) ones += i == 0 ? "1" : ", 1";
  CHECK(with_shape("[" + ones + "]") ==
        "g.json: /tensors/x/shape: a tensor has at most 32 dimensions, this one has 33");
  // a result that becomes too large
  CHECK(error_of(R"('tensors': {'x': {'shape': [4294967296, 1], 'dtype': 'int8', 'role': 'input'},
                               'w': {'shape': [1, 4294967296], 'dtype': 'int8', 'role': 'input'}},
                   'operators': [{'name': 'o', 'type': 'MatMul', 'inputs': ['x', 'w'], 'outputs': ['y']}])")
            .find("g.json: /operators/0") == 0);
}

TEST_CASE("A thousand damaged documents give a graph or an error, nothing else") {
  const std::string text = document_text(kMlp);
  std::mt19937 random(99);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::string damaged = text;
    for (int n = 0; n < 1 + i % 3; ++n) {
      const std::size_t at = random() % damaged.size();
      switch (random() % 4) {
        case 0:
          damaged[at] = static_cast<char>(random() % 256);
          break;
        case 1:
          damaged.erase(at, 1 + random() % 20);
          break;
        case 2:
          damaged.insert(at, damaged.substr(random() % damaged.size(), random() % 20));
          break;
        default:
          damaged[at] = "0123456789{}[]\",:-"[random() % 18];
      }
    }
    const Result<Graph> graph = read_graph(damaged, "g.json", kTraining);
    if (graph.has_value()) continue;
    ++refused;
    CHECK_FALSE(graph.error().message.empty());
    CHECK(to_string(graph.error()).find('\n') == std::string::npos);
  }
  CHECK(refused > 500);
}

}  // namespace
}  // namespace meshplan::resolve_test

// SPDX-License-Identifier: Apache-2.0
// The strategy file of MindSpore's semi-automatic parallelism.
//
// parallel_strategy_item says for every operator into how many pieces each dimension of each input
// is cut; MindSpore derives the rest, and inserts redistributions and the gradients' reductions by
// itself. parallel_layout_item says how every parameter rests: dev_matrix is the mesh, tensor_map
// the mesh axis that cuts each dimension, counted from the right (-1: none), tensor_shape the local
// shape. A parameter that is cut further for its optimizer (ZeRO) has the size and the stride of
// the group over which its pieces are spread in opt_weight_shard_size and opt_weight_shard_step.
//
// A dimension that several axes cut has one number in parallel_strategy_item, which does not say
// which axes: such an operator is also in parallel_layout_value_item, where a list stands for each
// dimension. Names of operators are those of the graph; a network's own are its cells' paths.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "graph/json.h"
#include "plan/exporters/exporter.h"

namespace meshplan {
namespace {

/// "Default/model/layers/0/mlp/up_proj/MatMul-op3": scope and name as a path.
std::string operator_key(const PlanOperator& op, std::size_t number) {
  std::string path = op.name;
  std::replace(path.begin(), path.end(), '.', '/');
  return "Default/" + path + "/" + op.type + "-op" + std::to_string(number);
}

void write_layout(JsonWriter& writer, const ExportSource& source, const Layout& layout) {
  writer.key("dev_matrix");
  writer.array(source.plan.mesh.shape);
  writer.key("tensor_map");
  writer.begin_array(JsonWriter::kOneLine);
  for (const std::vector<int>& entry : layout.tensor_map())
    writer.array(entry.empty() ? std::vector<int>{-1} : entry);
  writer.end_array();
}

/// Whether a dimension is cut by more than one axis, so that its number of pieces says too little.
bool several_axes(const Layout& layout) {
  for (int dim = 0; dim < layout.rank(); ++dim) {
    if (layout.axes_of(dim).size() > 1) return true;
  }
  return false;
}

/// The axes that cut the optimizer's state and not the parameter as operators read it.
struct OptimizerGroup {
  std::int64_t size = 1;
  std::int64_t step = 0;
  bool regular = true;  ///< the axes stand side by side in the mesh
};

OptimizerGroup optimizer_group(const ExportSource& source, AxisSet axes) {
  OptimizerGroup group;
  std::int64_t inner = 1;
  bool ended = false;
  for (int axis = source.mesh.ndim() - 1; axis >= 0; --axis) {
    const std::int64_t size = source.mesh.axis_size(axis);
    if ((axes >> axis & 1U) != 0 && size > 1) {
      if (group.step == 0) group.step = inner;
      group.regular = group.regular && !ended;
      group.size *= size;
    } else if (size > 1) {
      ended = ended || group.step > 0;
    }
    inner *= size;
  }
  return group;
}

class StrategyFile {
 public:
  explicit StrategyFile(const ExportSource& source) : source_(source) {}

  Exported run() {
    JsonWriter writer;
    writer.begin_object();
    writer.member("current_stage", 0);
    writer.key("parallel_strategy_item");
    writer.begin_object();
    for (std::size_t o = 0; o < source_.plan.operators.size(); ++o) write_operator(writer, o);
    writer.end_object();
    writer.key("parallel_layout_item");
    writer.begin_object();
    for (std::size_t t = 0; t < source_.plan.tensors.size(); ++t) write_parameter(writer, t);
    writer.end_object();
    if (std::any_of(source_.plan.operators.begin(), source_.plan.operators.end(), [&](auto& op) {
          return needs_layouts(op);
        })) {
      writer.key("parallel_layout_value_item");
      writer.begin_object();
      for (std::size_t o = 0; o < source_.plan.operators.size(); ++o) write_layouts(writer, o);
      writer.end_object();
    }
    writer.end_object();
    exported_.text = std::move(writer).text();
    add_warnings();
    return std::move(exported_);
  }

 private:
  std::size_t rank_of(std::size_t op, std::size_t operand) const {
    return source_.plan.operators[op].in_strategy[operand]->size();
  }

  bool needs_layouts(const PlanOperator& op) const {
    for (std::size_t i = 0; i < op.in_placements.size(); ++i) {
      if (op.in_placements[i] &&
          several_axes(layout_of(source_, *op.in_placements[i], op.in_strategy[i]->size())))
        return true;
    }
    return false;
  }

  void write_operator(JsonWriter& writer, std::size_t o) {
    const PlanOperator& op = source_.plan.operators[o];
    writer.key(operator_key(op, o));
    writer.begin_object(JsonWriter::kOneLine);
    writer.member("stage", 0);
    writer.key("parallel_strategy");
    writer.begin_array();
    for (const auto& strategy : op.in_strategy) {
      if (strategy) writer.array(*strategy);
    }
    writer.end_array();
    writer.end_object();
    const bool partial_in =
        std::any_of(op.in_placements.begin(), op.in_placements.end(), [](const auto& placements) {
          return placements && std::any_of(placements->begin(), placements->end(), [](auto& p) {
                   return is_partial(p);
                 });
        });
    if (partial_in) partial_.push_back(op.name);
    if (op.recompute) recomputed_.push_back(op.name);
    if (std::any_of(op.in_strategy.begin(), op.in_strategy.end(), [](const auto& strategy) {
          return !strategy.has_value();
        }))
      omitted_.push_back(op.name);
  }

  void write_layouts(JsonWriter& writer, std::size_t o) {
    const PlanOperator& op = source_.plan.operators[o];
    if (!needs_layouts(op)) return;
    writer.key(operator_key(op, o));
    writer.begin_object();
    for (std::size_t i = 0; i < op.in_placements.size(); ++i) {
      if (!op.in_placements[i]) continue;
      writer.key(std::to_string(i));
      writer.begin_object(JsonWriter::kOneLine);
      write_layout(writer, source_, layout_of(source_, *op.in_placements[i], rank_of(o, i)));
      writer.member("interleaved_parallel", false);
      writer.key("alias_name");
      writer.array(source_.plan.mesh.axes);
      writer.end_object();
    }
    writer.end_object();
  }

  void write_parameter(JsonWriter& writer, std::size_t t) {
    const Tensor& tensor = source_.graph.tensors[t];
    if (tensor.role != Role::kParameter) return;
    const PlanTensor& planned = source_.plan.tensors[t];
    // as its first reader has it; what cuts it further at rest is the optimizer's group
    Placements read = planned.placements;
    if (!tensor.uses.empty()) {
      const Use& first = tensor.uses.front();
      read = *source_.plan.operators[index(first.op)]
                  .in_placements[static_cast<std::size_t>(first.operand)];
    }
    const Layout layout = layout_of(source_, read, tensor.shape.size());
    Layout rest = layout_of(source_, planned.placements, tensor.shape.size());
    if (planned.optimizer_state)
      rest = layout_of(source_, *planned.optimizer_state, tensor.shape.size());
    if (several_axes(layout)) {
      two_axes_.push_back(tensor.name);
      return;
    }
    const OptimizerGroup group =
        optimizer_group(source_, rest.cutting_axes() & ~layout.cutting_axes());
    if (!group.regular) irregular_.push_back(tensor.name);
    const bool further = group.size > 1 && group.regular;
    writer.key(tensor.name);
    writer.begin_object(JsonWriter::kOneLine);
    writer.key("dev_matrix");
    writer.array(source_.plan.mesh.shape);
    writer.key("tensor_map");
    writer.begin_array();
    for (const std::vector<int>& entry : layout.tensor_map())
      writer.value(entry.empty() ? -1 : entry.front());
    writer.end_array();
    writer.key("tensor_shape");
    const auto local = layout.without_partial().local_shape(tensor.shape);
    writer.array(local ? *local : tensor.shape);
    writer.member("field", 0);
    writer.member("opt_weight_shard_step", further ? group.step : std::int64_t{0});
    writer.member("opt_weight_shard_size", further ? group.size : std::int64_t{0});
    writer.end_object();
  }

  void add_warnings() {
    if (!source_.plan.mesh.ranks.empty())
      exported_.warnings.emplace_back(
          "the order of the mesh's ranks cannot be expressed; MindSpore numbers them row-major");
    warn_of(exported_,
            partial_,
            "operators that read partial sums",
            "cannot be said in a strategy; MindSpore reduces the sums before");
    warn_of(exported_,
            omitted_,
            "operators that leave an optional input out",
            "have strategies in which the inputs behind it move up");
    warn_of(exported_,
            two_axes_,
            "parameters with a dimension that several axes cut",
            "cannot be said in parallel_layout_item; they are left out of it");
    warn_of(exported_,
            irregular_,
            "parameters whose optimizer state is spread over axes that do not stand side by side",
            "have no group size and step; their state is left whole");
    warn_of(exported_,
            recomputed_,
            "operators that are recomputed",
            "cannot be said in a strategy file; set it on their cells");
  }

  const ExportSource& source_;
  Exported exported_;
  std::vector<std::string> partial_;
  std::vector<std::string> omitted_;
  std::vector<std::string> two_axes_;
  std::vector<std::string> irregular_;
  std::vector<std::string> recomputed_;
};

}  // namespace

Exported export_mindspore(const ExportSource& source) { return StrategyFile(source).run(); }

}  // namespace meshplan

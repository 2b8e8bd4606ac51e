// SPDX-License-Identifier: Apache-2.0
// Matrix products: MatMul (any number of batch dimensions, transposes) and Gemm.
#include <algorithm>

#include "graph/ops/ops.h"

namespace meshplan {

Result<Rule> make_matmul(const OperatorSpec& spec) {
  auto a = operand_shape(spec, 0);
  if (!a) return fail(a.error());
  auto b = operand_shape(spec, 1);
  if (!b) return fail(b.error());
  auto transpose_a = integer_attribute(spec, "transpose_a", 0);
  if (!transpose_a) return fail(transpose_a.error());
  auto transpose_b = integer_attribute(spec, "transpose_b", 0);
  if (!transpose_b) return fail(transpose_b.error());
  if (a->empty() || b->empty())
    return fail(ErrorCode::kValue, "", "MatMul needs operands of at least one dimension");
  const bool vector_a = a->size() == 1;
  const bool vector_b = b->size() == 1;
  std::string text = vector_a ? "k" : *transpose_a != 0 ? "~B.. k m" : "~B.. m k";
  text += vector_b ? ", k" : *transpose_b != 0 ? ", ~B.. n k" : ", ~B.. k n";
  text += vector_a && vector_b ? " ->"
          : vector_a           ? " -> B.. n"
          : vector_b           ? " -> B.. m"
                               : " -> B.. m n";
  text += " ; sum:k lin:x|y saves:x,y flops:2*k";
  if (!(vector_a && vector_b)) text += "*B";
  if (!vector_a) text += "*m";
  if (!vector_b) text += "*n";
  return rule_from_text(spec, text);
}

Result<Rule> make_gemm(const OperatorSpec& spec) {
  auto transpose_a = integer_attribute(spec, "transA", 0);
  if (!transpose_a) return fail(transpose_a.error());
  auto transpose_b = integer_attribute(spec, "transB", 0);
  if (!transpose_b) return fail(transpose_b.error());
  std::string text = *transpose_a != 0 ? "k m" : "m k";
  text += *transpose_b != 0 ? ", n k" : ", k n";
  if (spec.inputs.size() > 2 && spec.inputs[2]) {
    const std::size_t rank = spec.inputs[2]->shape.size();
    text += rank == 0 ? ", " : rank == 1 ? ", ~n" : ", ~m ~n";
  } else {
    text += ", ~n?";
  }
  const bool bias = has_operand(spec, 2);
  return rule_from_text(
      spec, text + " -> m n ; sum:k lin:x|y" + (bias ? " add:z" : "") + " saves:x,y flops:2*m*k*n");
}

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Operators of every type with what the table must say of each:
//   "result shapes | factors | linear, saved, added and exchanged | FLOPs".
#pragma once

#include <string>
#include <vector>

#include "graph/operator_table.h"

namespace meshplan {

struct OperatorExample {
  std::string type;
  std::vector<std::optional<Shape>> inputs;
  Attributes attributes;
  int outputs = 1;
  std::string expected;
};

inline Attribute number(std::int64_t value) { return value; }
inline Attribute real(double value) { return value; }
inline Attribute text(std::string value) { return value; }
inline Attribute list(std::vector<std::int64_t> values) { return values; }

inline const std::vector<OperatorExample>& operator_examples() {
  // one statement per row: compilers take seconds for one expression of hundreds of rows
  static const std::vector<OperatorExample> kExamples = [] {
    std::vector<OperatorExample> rows;
    const auto add = [&](OperatorExample row) { rows.push_back(std::move(row)); };
    add({"Abs", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Abs", {Shape{}}, {}, 1, "[] |  | saves:0 | 1"});
    add({"Acos", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Acosh", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Add", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"Add", {Shape{4, 1}, Shape{1, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"Add", {Shape{4, 8}, Shape{8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"Add", {Shape{8}, Shape{2, 4, 8}}, {}, 1, "[2 4 8] | x0 x1 x2 | lin:0+1 | 64"});
    add({"Add", {Shape{}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"Add", {Shape{1}, Shape{1}}, {}, 1, "[1] | x0 | lin:0+1 | 1"});
    add({"And", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"ArgMax", {Shape{4, 8}}, {}, 1, "[1 8] | x0:whole x1 |  | 32"});
    add({"ArgMin",
         {Shape{2, 4, 8}},
         {{"axis", number(-2)}, {"keepdims", number(0)}},
         1,
         "[2 8] | x0 x1:whole x2 |  | 64"});
    add({"Asin", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Asinh", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Atan", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Atanh", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Attention",
         {Shape{2, 8, 16, 4}, Shape{2, 4, 16, 4}, Shape{2, 4, 16, 6}},
         {{"is_causal", number(1)}},
         1,
         "[2 8 16 6] | b g q s e:whole t:ring=s f:whole | saves:0,1,2,out | 40960"});
    add({"Attention",
         {Shape{2, 8, 16, 4}, Shape{2, 8, 12, 4}, Shape{2, 8, 12, 4}, Shape{16, 12}},
         {},
         1,
         "[2 8 16 4] | b g q s e:whole t:ring=s f:whole | saves:0,1,2,3,out | 49152"});
    add({"Attention",
         {Shape{2, 8, 16, 4}, Shape{2, 8, 12, 4}, Shape{2, 8, 12, 4}, Shape{1, 8, 1, 12}},
         {},
         1,
         "[2 8 16 4] | b g q s e:whole t:ring=s f:whole | saves:0,1,2,3,out | 49152"});
    add({"Attention",
         {Shape{2, 16, 32}, Shape{2, 12, 16}, Shape{2, 12, 24}},
         {{"q_num_heads", number(8)}, {"kv_num_heads", number(4)}},
         1,
         "[2 16 48] | b s g q e:whole t:ring=s f:whole | saves:0,1,2,out | 61440"});
    add({"Attention",
         {Shape{2, 8, 1, 4},
          Shape{2, 4, 1, 4},
          Shape{2, 4, 1, 4},
          std::nullopt,
          Shape{2, 4, 6, 4},
          Shape{2, 4, 6, 4}},
         {},
         3,
         "[2 8 1 4] [2 4 7 4] [2 4 7 4] | b g q s e:whole t:whole f:whole p:whole n:whole | "
         "saves:0,1,2,4,5,out | 1792"});
    add({"Attention",
         {Shape{2, 8, 2, 4},
          Shape{2, 4, 2, 4},
          Shape{2, 4, 2, 4},
          Shape{2, 8},
          Shape{2, 4, 6, 4},
          Shape{2, 4, 6, 4}},
         {},
         1,
         "[2 8 2 4] | b g q s e:whole t:whole f:whole p:whole | saves:0,1,2,3,4,5,out | 4096"});
    add({"Attention",
         {Shape{2, 8, 2, 4},
          Shape{2, 4, 2, 4},
          Shape{2, 4, 2, 4},
          std::nullopt,
          Shape{2, 4, 6, 4},
          Shape{2, 4, 6, 4}},
         {{"is_causal", number(1)}},
         1,
         "[2 8 2 4] | b g q s e:whole t:whole f:whole p:whole | saves:0,1,2,4,5,out | 3584"});
    add({"Attention",
         {Shape{2, 8, 16, 4},
          Shape{2, 4, 16, 4},
          Shape{2, 4, 16, 4},
          std::nullopt,
          std::nullopt,
          std::nullopt,
          std::nullopt,
          Shape{8}},
         {{"is_causal", number(1)}, {"sliding_window", number(4)}},
         1,
         "[2 8 16 4] | b g q s e:whole t:ring=s f:whole | saves:0,1,2,7,out | 14336"});
    add({"AveragePool",
         {Shape{2, 4, 8, 8}},
         {{"kernel_shape", list({2, 2})}, {"strides", list({2, 2})}},
         1,
         "[2 4 4 4] | b c s0:shift s1:shift | lin:0 | 512"});
    add({"AveragePool",
         {Shape{2, 4, 16}},
         {{"kernel_shape", list({3})}, {"auto_pad", text("SAME_UPPER")}},
         1,
         "[2 4 16] | b c s0:shift | lin:0 | 384"});
    add({"BatchNormalization",
         {Shape{4, 8, 6, 6}, Shape{8}, Shape{8}, Shape{8}, Shape{8}},
         {},
         1,
         "[4 8 6 6] | b c s0 s1 | saves:0,1,3,4 | 1152"});
    add({"BatchNormalization",
         {Shape{4, 8, 6, 6}, Shape{8}, Shape{8}, Shape{8}, Shape{8}},
         {{"training_mode", number(1)}},
         3,
         "[4 8 6 6] [8] [8] | b:stat c s0:stat s1:stat | saves:0,1 stat:1/1x2 | 1152"});
    add({"BatchNormalization",
         {Shape{4, 8}, Shape{8}, Shape{8}, Shape{8}, Shape{8}},
         {{"training_mode", number(1)}, {"sync", number(0)}},
         1,
         "[4 8] | b:stat c | saves:0,1 | 32"});
    add({"Bernoulli", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"BitShift", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"BitwiseAnd", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"BitwiseNot", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"BitwiseOr", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"BitwiseXor", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Cast", {Shape{4, 8}}, {{"to", text("fp32")}}, 1, "[4 8] | x0 x1 | lin:0 | 32"});
    add({"Cast", {Shape{4, 8}}, {{"to", text("fp16")}}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Cast", {Shape{4, 8}}, {{"to", number(7)}}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"CastLike", {Shape{4, 8}, Shape{3}}, {}, 1, "[4 8] | x0 x1 | lin:0 | 32"});
    add({"Ceil", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Celu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Clip", {Shape{4, 8}, std::nullopt, std::nullopt}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Clip", {Shape{4, 8}, Shape{}, Shape{}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Clip", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Concat",
         {Shape{4, 8}, Shape{4, 8}},
         {{"axis", number(1)}},
         1,
         "[4 16] | x0 d n | lin:0+1 | 0"});
    add({"Concat",
         {Shape{4, 8}, Shape{4, 4}, Shape{4, 2}},
         {{"axis", number(-1)}},
         1,
         "[4 14] | x0 j:whole | lin:0+1+2 | 0"});
    add({"Concat", {Shape{6}}, {{"axis", number(0)}}, 1, "[6] | d n | lin:0 | 0"});
    add({"Concat",
         {Shape{4, 1, 6}, Shape{4, 1, 6}, Shape{4, 1, 6}, Shape{4, 1, 6}},
         {{"axis", number(1)}},
         1,
         "[4 4 6] | x0 d x2 n | lin:0+1+2+3 | 0"});
    add({"Constant", {}, {{"shape", list({4, 8})}}, 1, "[4 8] | x0 x1 |  | 0"});
    add({"Constant", {}, {{"value_ints", list({1, 2, 3, 4})}}, 1, "[4] | x0 |  | 0"});
    add({"Constant", {}, {{"value_float", real(1.5)}}, 1, "[] |  |  | 0"});
    add({"ConstantOfShape",
         {},
         {{"shape", list({4, 8})}, {"dtype", text("bool")}},
         1,
         "[4 8] | x0 x1 |  | 0"});
    add({"Conv",
         {Shape{2, 4, 8, 8}, Shape{6, 4, 3, 3}, Shape{6}},
         {{"pads", list({1, 1, 1, 1})}},
         1,
         "[2 6 8 8] | b g c:sum s0:shift s1:shift o w0:whole w1:whole | lin:0 lin:1 saves:0,1 "
         "add:2 "
         "| 55296"});
    add({"Conv",
         {Shape{2, 8, 16, 16}, Shape{8, 1, 3, 3}},
         {{"group", number(8)}, {"strides", list({2, 2})}, {"pads", list({1, 1, 1, 1})}},
         1,
         "[2 8 8 8] | b g c:sum s0:shift s1:shift o w0:whole w1:whole | lin:0 lin:1 saves:0,1 | "
         "18432"});
    add({"Conv",
         {Shape{2, 8, 12}, Shape{4, 4, 2}},
         {{"group", number(2)}, {"dilations", list({2})}},
         1,
         "[2 4 10] | b g c:sum s0:shift o w0:whole | lin:0 lin:1 saves:0,1 | 1280"});
    add({"Conv",
         {Shape{2, 4, 8, 8}, Shape{6, 4, 1, 1}},
         {},
         1,
         "[2 6 8 8] | b g c:sum s0 s1 o w0:whole w1:whole | lin:0 lin:1 saves:0,1 | 6144"});
    add({"Conv",
         {Shape{2, 4, 4, 8, 8}, Shape{6, 4, 3, 3, 3}},
         {{"auto_pad", text("SAME_LOWER")}},
         1,
         "[2 6 4 8 8] | b g c:sum s0:shift s1:shift s2:shift o w0:whole w1:whole w2:whole | lin:0 "
         "lin:1 saves:0,1 | 663552"});
    add({"Conv",
         {Shape{1, 3, 32, 32}, Shape{8, 3, 8, 8}},
         {{"strides", list({8, 8})}},
         1,
         "[1 8 4 4] | b g c:sum s0:shift s1:shift o w0:whole w1:whole | lin:0 lin:1 saves:0,1 | "
         "49152"});
    add({"Cos", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Cosh", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"CumSum", {Shape{4, 8}}, {{"axis", number(1)}}, 1, "[4 8] | x0 x1:whole | lin:0 | 32"});
    add({"Div", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0 saves:0,1 | 32"});
    add({"Div", {Shape{4, 1}, Shape{1, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0 saves:0,1 | 32"});
    add({"Dropout", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Dropout", {Shape{4, 8}, Shape{}, std::nullopt}, {}, 2, "[4 8] [4 8] | x0 x1 |  | 32"});
    add({"Einsum",
         {Shape{4, 6}, Shape{6, 8}},
         {{"equation", text("ij,jk->ik")}},
         1,
         "[4 8] | i j:sum k | lin:0 lin:1 saves:0,1 | 384"});
    add({"Einsum",
         {Shape{2, 4, 6}, Shape{2, 6, 8}},
         {{"equation", text("...ij,...jk->...ik")}},
         1,
         "[2 4 8] | ell0 i j:sum k | lin:0 lin:1 saves:0,1 | 768"});
    add({"Einsum", {Shape{4, 6}}, {{"equation", text("ij->j")}}, 1, "[6] | i:sum j | lin:0 | 24"});
    add({"Einsum",
         {Shape{4}, Shape{6}},
         {{"equation", text("i,j")}},
         1,
         "[4 6] | i j | lin:0 lin:1 saves:0,1 | 48"});
    add({"Einsum",
         {Shape{2, 3, 8, 4}, Shape{2, 5, 8, 4}},
         {{"equation", text("bqhd, bkhd -> bhqk")}},
         1,
         "[2 8 3 5] | b q h d:sum k | lin:0 lin:1 saves:0,1 | 1920"});
    add({"Einsum",
         {Shape{4, 6}, Shape{6, 8}, Shape{8}},
         {{"equation", text("ab,bc,c->a")}},
         1,
         "[4] | a b:sum c:sum | lin:0 lin:1 lin:2 saves:0,1,2 | 384"});
    add({"Einsum",
         {Shape{2, 4, 6}},
         {{"equation", text("...ij->ji")}},
         1,
         "[6 4] | ell0:sum i j | lin:0 | 48"});
    add({"Einsum", {Shape{4, 6}}, {{"equation", text("ba")}}, 1, "[6 4] | b a | lin:0 | 24"});
    add({"Elu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Equal", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Erf", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Exp", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"Expand",
         {Shape{4, 1}},
         {{"shape", list({2, 4, 8})}},
         1,
         "[2 4 8] | x1 x0 x2 | lin:0 | 0"});
    add({"Expand", {Shape{}}, {{"shape", list({4})}}, 1, "[4] | x0 | lin:0 | 0"});
    add({"Expand", {Shape{4}}, {{"shape", list({1})}}, 1, "[4] | x0 | lin:0 | 0"});
    add({"Flatten", {Shape{2, 4, 8}}, {{"axis", number(2)}}, 1, "[8 8] | x0 x1 x2 | lin:0 | 0"});
    add({"Flatten", {Shape{2, 4, 8}}, {{"axis", number(0)}}, 1, "[1 64] | x0 x1 x2 | lin:0 | 0"});
    add({"Flatten", {Shape{4}}, {}, 1, "[4 1] | x0 | lin:0 | 0"});
    add({"Floor", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Gather",
         {Shape{16, 8}, Shape{2, 4}},
         {{"axis", number(0)}},
         1,
         "[2 4 8] | v:sum d1 t0 t1 | saves:1 | 0"});
    add({"Gather",
         {Shape{16, 8}, Shape{4}},
         {{"axis", number(1)}},
         1,
         "[16 4] | d0 v:sum t0 | saves:1 | 0"});
    add({"Gather",
         {Shape{4, 8}, Shape{}},
         {{"axis", number(-1)}},
         1,
         "[4] | d0 v:sum | saves:1 | 0"});
    add({"Gather", {Shape{8}, Shape{}}, {}, 1, "[] | v:sum | saves:1 | 0"});
    add({"GatherElements",
         {Shape{4, 8}, Shape{4, 6}},
         {{"axis", number(1)}},
         1,
         "[4 6] | x0 v:sum t | saves:1 | 0"});
    add({"GatherElements",
         {Shape{6, 8}, Shape{4, 3}},
         {{"axis", number(-1)}},
         1,
         "[4 3] | p0:whole v:sum x0:whole t | saves:1 | 0"});
    add({"GatherND", {Shape{4, 8}, Shape{6, 1}}, {}, 1, "[6 8] | v0:sum d0 t0 | saves:1 | 0"});
    add({"GatherND", {Shape{4, 8}, Shape{6, 2}}, {}, 1, "[6] | v0:sum v1:sum t0 | saves:1 | 0"});
    add({"GatherND",
         {Shape{4, 8, 6}, Shape{4, 2, 1}},
         {{"batch_dims", number(1)}},
         1,
         "[4 2 6] | b0 v0:sum d0 t0 | saves:1 | 0"});
    add({"GatherND", {Shape{4, 8}, Shape{2}}, {}, 1, "[] | v0:sum v1:sum | saves:1 | 0"});
    add({"Gelu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Gemm",
         {Shape{4, 8}, Shape{8, 2}, Shape{2}},
         {},
         1,
         "[4 2] | m k:sum n | lin:0 lin:1 saves:0,1 add:2 | 128"});
    add({"Gemm",
         {Shape{8, 4}, Shape{2, 8}},
         {{"transA", number(1)}, {"transB", number(1)}},
         1,
         "[4 2] | k:sum m n | lin:0 lin:1 saves:0,1 | 128"});
    add({"Gemm",
         {Shape{4, 8}, Shape{8, 2}, Shape{4, 1}},
         {},
         1,
         "[4 2] | m k:sum n | lin:0 lin:1 saves:0,1 add:2 | 128"});
    add({"Gemm",
         {Shape{4, 8}, Shape{8, 2}, Shape{}},
         {},
         1,
         "[4 2] | m k:sum n | lin:0 lin:1 saves:0,1 add:2 | 128"});
    add({"Gemm",
         {Shape{4, 8}, Shape{8, 2}, std::nullopt},
         {},
         1,
         "[4 2] | m k:sum n | lin:0 lin:1 saves:0,1 | 128"});
    add({"GlobalAveragePool",
         {Shape{2, 4, 6, 8}},
         {},
         1,
         "[2 4 1 1] | b c s0:sum s1:sum | lin:0 | 384"});
    add({"GlobalAveragePool", {Shape{2, 4}}, {}, 1, "[2 4] | b c | lin:0 | 8"});
    add({"GlobalLpPool",
         {Shape{2, 4, 6}},
         {},
         1,
         "[2 4 1] | b c s0:stat | saves:0,out stat:1/0 | 48"});
    add({"GlobalMaxPool", {Shape{2, 4, 6}}, {}, 1, "[2 4 1] | b c s0:max | saves:0 stat:0/2 | 48"});
    add({"Greater", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Greater", {Shape{4, 8}, Shape{}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"GreaterOrEqual", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"GroupNormalization",
         {Shape{2, 8, 6}, Shape{8}, Shape{8}},
         {{"num_groups", number(4)}},
         1,
         "[2 8 6] | b g c:stat s0:stat | saves:0,1 stat:1/1x2 | 96"});
    add({"GroupNormalization",
         {Shape{2, 8, 6}, Shape{4}, Shape{4}},
         {{"num_groups", number(4)}},
         1,
         "[2 8 6] | b g c:stat s0:stat | saves:0,1 stat:1/1x2 | 96"});
    add({"GroupNormalization",
         {Shape{2, 8}, Shape{8}, Shape{8}},
         {{"num_groups", number(1)}},
         1,
         "[2 8] | b g c:stat | saves:0,1 stat:1/1x2 | 16"});
    add({"GroupedMatMul",
         {Shape{4, 6, 8}, Shape{4, 8, 2}},
         {},
         1,
         "[4 6 2] | e c d:sum f | lin:0 lin:1 saves:0,1 | 768"});
    add({"GroupedMatMul",
         {Shape{4, 6, 8}, Shape{4, 2, 8}},
         {{"transpose_b", number(1)}},
         1,
         "[4 6 2] | e c d:sum f | lin:0 lin:1 saves:0,1 | 768"});
    add({"HardSigmoid", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"HardSwish", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Identity", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0 | 0"});
    add({"InstanceNormalization",
         {Shape{2, 8, 6}, Shape{8}, Shape{8}},
         {},
         1,
         "[2 8 6] | b c s0:stat | saves:0,1 stat:1/1x2 | 96"});
    add({"IsInf", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"IsNaN", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"LayerNormalization",
         {Shape{2, 4, 8}, Shape{8}, Shape{8}},
         {},
         1,
         "[2 4 8] | x0 x1 r0:stat | saves:0,1 stat:1/1x2 | 64"});
    add({"LayerNormalization",
         {Shape{2, 4, 8}, Shape{4, 8}},
         {{"axis", number(1)}},
         1,
         "[2 4 8] | x0 r0:stat r1:stat | saves:0,1 stat:1/1x2 | 64"});
    add({"LayerNormalization",
         {Shape{2, 4, 8}, Shape{8}, std::nullopt},
         {},
         3,
         "[2 4 8] [2 4 1] [2 4 1] | x0 x1 r0:stat | saves:0,1 stat:1/1x2 | 64"});
    add({"LayerNormalization",
         {Shape{8}, Shape{8}},
         {{"axis", number(0)}},
         1,
         "[8] | r0:stat | saves:0,1 stat:1/1x2 | 8"});
    add({"LeakyRelu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Less", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"LessOrEqual", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Log", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"LogSoftmax", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1:stat | saves:out stat:2/1 | 32"});
    add({"LpNormalization",
         {Shape{4, 8}},
         {{"p", number(1)}},
         1,
         "[4 8] | x0 x1:stat | saves:0 stat:1/1 | 32"});
    add({"LpPool",
         {Shape{2, 4, 8}},
         {{"kernel_shape", list({2})}, {"strides", list({2})}},
         1,
         "[2 4 4] | b c s0:shift | saves:0,out | 64"});
    add({"MatMul",
         {Shape{2, 4, 8}, Shape{8, 6}},
         {},
         1,
         "[2 4 6] | B0 m k:sum n | lin:0 lin:1 saves:0,1 | 768"});
    add({"MatMul",
         {Shape{2, 4, 8}, Shape{2, 8, 6}},
         {},
         1,
         "[2 4 6] | B0 m k:sum n | lin:0 lin:1 saves:0,1 | 768"});
    add({"MatMul",
         {Shape{2, 8, 4}, Shape{6, 8}},
         {{"transpose_a", number(1)}, {"transpose_b", number(1)}},
         1,
         "[2 4 6] | B0 k:sum m n | lin:0 lin:1 saves:0,1 | 768"});
    add({"MatMul", {Shape{8}, Shape{8, 6}}, {}, 1, "[6] | k:sum n | lin:0 lin:1 saves:0,1 | 96"});
    add({"MatMul", {Shape{4, 8}, Shape{8}}, {}, 1, "[4] | m k:sum | lin:0 lin:1 saves:0,1 | 64"});
    add({"MatMul", {Shape{8}, Shape{8}}, {}, 1, "[] | k:sum | lin:0 lin:1 saves:0,1 | 16"});
    add({"MatMul",
         {Shape{1, 4, 8}, Shape{3, 8, 6}},
         {},
         1,
         "[3 4 6] | B0 m k:sum n | lin:0 lin:1 saves:0,1 | 1152"});
    add({"MatMul",
         {Shape{2, 3, 4, 8}, Shape{3, 8, 1}},
         {},
         1,
         "[2 3 4 1] | B0 B1 m k:sum n | lin:0 lin:1 saves:0,1 | 384"});
    add({"Max", {Shape{4, 8}, Shape{8}, Shape{4, 1}}, {}, 1, "[4 8] | x0 x1 | saves:0,1,2 | 32"});
    add({"MaxPool",
         {Shape{2, 4, 8, 8}},
         {{"kernel_shape", list({3, 3})}, {"strides", list({2, 2})}, {"pads", list({1, 1, 1, 1})}},
         2,
         "[2 4 4 4] [2 4 4 4] | b c s0:shift s1:shift | saves:0,out | 1152"});
    add({"MaxPool",
         {Shape{2, 4, 7}},
         {{"kernel_shape", list({2})}, {"strides", list({2})}, {"ceil_mode", number(1)}},
         1,
         "[2 4 4] | b c s0:shift | saves:0,out | 64"});
    add({"MaxPool",
         {Shape{2, 4, 8}},
         {{"kernel_shape", list({1})}},
         1,
         "[2 4 8] | b c s0 | saves:0,out | 64"});
    add({"Mean", {Shape{4, 8}, Shape{8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"MeanVarianceNormalization",
         {Shape{2, 4, 6, 8}},
         {},
         1,
         "[2 4 6 8] | x0:stat x1 x2:stat x3:stat | saves:0 stat:1/1x2 | 384"});
    add({"MeanVarianceNormalization",
         {Shape{4, 8}},
         {{"axes", list({-1})}},
         1,
         "[4 8] | x0 x1:stat | saves:0 stat:1/1x2 | 32"});
    add({"Min", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Mish", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"MoECombine",
         {Shape{4, 16, 6}, Shape{16, 2}, Shape{16, 2}},
         {{"groups", number(4)}},
         1,
         "[16 6] | e:sum g c:sum d s:whole | lin:0 lin:2 saves:0,1,2 route:g=e route:s=e | 384"});
    add({"MoECombine",
         {Shape{4, 16, 6}, Shape{16, 2}},
         {},
         1,
         "[16 6] | e:sum g c:sum d s:whole | lin:0 saves:1 route:g=e route:s=e | 384"});
    add({"MoEDispatch",
         {Shape{16, 6}, Shape{16, 2}},
         {{"num_experts", number(4)},
          {"capacity_factor", number(2)},
          {"groups", number(4)},
          {"top_k", number(2)}},
         1,
         "[4 16 6] | g s:whole d e c | lin:0 saves:1 route:g=e route:s=e | 0"});
    add({"MoEDispatch",
         {Shape{16, 6}, Shape{16, 2}},
         {{"num_experts", number(4)}},
         1,
         "[4 8 6] | g s:whole d e c | lin:0 saves:1 route:g=e route:s=e | 0"});
    add({"MoEDispatch",
         {Shape{8, 6}, Shape{8, 1}},
         {{"num_experts", number(16)}, {"capacity_factor", real(0.5)}},
         1,
         "[16 1 6] | g s:whole d e c | lin:0 saves:1 route:g=e route:s=e | 0"});
    add({"Mod", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Mul", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0 lin:1 saves:0,1 | 32"});
    add({"Mul", {Shape{4, 1}, Shape{1, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0 lin:1 saves:0,1 | 32"});
    add({"Mul", {Shape{}, Shape{}}, {}, 1, "[] |  | lin:0 lin:1 saves:0,1 | 1"});
    add({"Multinomial",
         {Shape{4, 8}},
         {{"sample_size", number(6)}},
         1,
         "[4 6] | b c:whole n |  | 192"});
    add({"Neg", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0 | 32"});
    add({"Neg", {Shape{}}, {}, 1, "[] |  | lin:0 | 1"});
    add({"NegativeLogLikelihoodLoss",
         {Shape{4, 16}, Shape{4}},
         {},
         1,
         "[] | t0:sum v:stat | saves:1 stat:1/0 | 64"});
    add({"NegativeLogLikelihoodLoss",
         {Shape{4, 16, 6}, Shape{4, 6}, Shape{16}},
         {{"reduction", text("none")}},
         1,
         "[4 6] | t0 v:stat t2 | saves:1,2 stat:2/0 | 384"});
    add({"NonZero", {Shape{4, 8}}, {}, 1, "[2 32] | r:whole n:whole |  | 0"});
    add({"NonZero", {Shape{4, 8}}, {{"size", number(6)}}, 1, "[2 6] | r:whole n:whole |  | 0"});
    add({"NonZero", {Shape{}}, {}, 1, "[1 1] | r:whole n:whole |  | 0"});
    add({"Not", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"OneHot", {Shape{4}, Shape{2}}, {{"depth", number(8)}}, 1, "[4 8] | t0 v | saves:0 | 0"});
    add({"OneHot",
         {Shape{4, 6}},
         {{"depth", number(8)}, {"axis", number(1)}},
         1,
         "[4 8 6] | t0 t1 v | saves:0 | 0"});
    add({"OneHot", {Shape{}}, {{"depth", number(8)}}, 1, "[8] | v | saves:0 | 0"});
    add({"Or", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"PRelu", {Shape{2, 4, 8}, Shape{4, 1}}, {}, 1, "[2 4 8] | x0 x1 x2 | saves:0,1 | 64"});
    add({"PRelu", {Shape{4, 8}, Shape{}}, {}, 1, "[4 8] | x0 x1 | saves:0,1 | 32"});
    add({"Pad",
         {Shape{4, 8}},
         {{"pads", list({0, 1, 0, 2})}},
         1,
         "[4 11] | x0 x1:whole | lin:0 | 0"});
    add({"Pad",
         {Shape{4, 8}, Shape{}},
         {{"pads", list({1, 0, 0, 0})}},
         1,
         "[5 8] | x1 x0:whole |  | 0"});
    add({"Pad",
         {Shape{4, 8}},
         {{"pads", list({1, 1})}, {"axes", list({-1})}, {"mode", text("reflect")}},
         1,
         "[4 10] | x0 x1:whole | lin:0 | 0"});
    add({"Pad",
         {Shape{4, 8}},
         {{"pads", list({0, -2, 0, 0})}, {"value", real(1.5)}},
         1,
         "[4 6] | x0 x1:whole |  | 0"});
    add({"Pad", {Shape{4}}, {{"pads", list({0, 0})}}, 1, "[4] | x0 | lin:0 | 0"});
    add({"Pow", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0,1 | 32"});
    add({"Pow", {Shape{4, 1}, Shape{1, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0,1 | 32"});
    add({"RMSNormalization",
         {Shape{2, 4, 8}, Shape{8}},
         {},
         1,
         "[2 4 8] | x0 x1 r0:stat | saves:0,1 stat:1/1 | 64"});
    add({"RandomNormal", {}, {{"shape", list({4, 8})}}, 1, "[4 8] | x0 x1 |  | 0"});
    add({"RandomNormalLike", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"RandomUniform", {}, {{"shape", list({4})}, {"dtype", number(11)}}, 1, "[4] | x0 |  | 0"});
    add({"RandomUniformLike", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Range",
         {},
         {{"start", number(2)}, {"limit", number(18)}, {"delta", number(2)}},
         1,
         "[8] | x0 |  | 0"});
    add({"Range",
         {},
         {{"start", real(1.0)},
          {"limit", real(0.0)},
          {"delta", real(-0.25)},
          {"dtype", text("fp32")}},
         1,
         "[4] | x0 |  | 0"});
    add({"Reciprocal", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"ReduceL1", {Shape{4, 8}}, {{"axes", list({1})}}, 1, "[4 1] | x0 x1:sum | saves:0 | 32"});
    add({"ReduceL2",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:stat | saves:0,out stat:1/0 | 32"});
    add({"ReduceLogSum",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:stat | saves:out stat:1/0 | 32"});
    add({"ReduceLogSumExp",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:stat | saves:0,out stat:2/0 | 32"});
    add({"ReduceMax",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:max | saves:0 stat:0/2 | 32"});
    add({"ReduceMax",
         {Shape{1, 6}},
         {{"axes", list({0})}},
         1,
         "[1 6] | x0:max x1 | saves:0 stat:0/2 | 6"});
    add({"ReduceMean", {Shape{4, 8}}, {{"axes", list({1})}}, 1, "[4 1] | x0 x1:sum | lin:0 | 32"});
    add({"ReduceMean",
         {Shape{2, 4, 8}},
         {{"axes", list({0, 2})}, {"keepdims", number(0)}},
         1,
         "[4] | x0:sum x1 x2:sum | lin:0 | 64"});
    add({"ReduceMin",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:min | saves:0 stat:0/2 | 32"});
    add({"ReduceMin",
         {Shape{4, 8}},
         {{"keepdims", number(0)}},
         1,
         "[] | x0:min x1:min | saves:0 stat:0/2 | 32"});
    add({"ReduceProd",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:prod | saves:0 stat:0/1 | 32"});
    add({"ReduceProd",
         {Shape{4, 8}},
         {{"axes", list({-1})}},
         1,
         "[4 1] | x0 x1:prod | saves:0 stat:0/1 | 32"});
    add({"ReduceSum", {Shape{4, 8}}, {{"axes", list({1})}}, 1, "[4 1] | x0 x1:sum | lin:0 | 32"});
    add({"ReduceSum",
         {Shape{4, 8}},
         {{"noop_with_empty_axes", number(1)}},
         1,
         "[4 8] | x0 x1 | lin:0 | 32"});
    add({"ReduceSum", {Shape{}}, {}, 1, "[] |  | lin:0 | 1"});
    add({"ReduceSumSquare",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:sum | saves:0 | 32"});
    add({"ReduceVariance",
         {Shape{4, 8}},
         {{"axes", list({1})}},
         1,
         "[4 1] | x0 x1:stat | saves:0 stat:1/0x2 | 32"});
    add({"Relu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"Relu", {Shape{1, 6, 1}}, {}, 1, "[1 6 1] | x0 x1 x2 | saves:out | 6"});
    add({"Reshape",
         {Shape{2, 4, 8}},
         {{"shape", list({8, 8})}},
         1,
         "[8 8] | x0 x1 x2 | lin:0 | 0"});
    add({"Reshape",
         {Shape{4, 32}},
         {{"shape", list({0, 4, 8})}},
         1,
         "[4 4 8] | x0 x1 x2 | lin:0 | 0"});
    add({"Reshape",
         {Shape{6, 4}},
         {{"shape", list({4, -1})}},
         1,
         "[4 6] | x0 p0:whole p1:whole q0:whole q1:whole | lin:0 | 0"});
    add({"Reshape", {Shape{1, 1}}, {{"shape", list({})}}, 1, "[] |  | lin:0 | 0"});
    add({"Reshape", {Shape{}}, {{"shape", list({1})}}, 1, "[1] |  | lin:0 | 0"});
    add({"RotaryEmbedding",
         {Shape{2, 4, 8, 6}, Shape{8, 3}, Shape{8, 3}},
         {},
         1,
         "[2 4 8 6] | b h s d:whole e:whole | lin:0 saves:1,2 | 1152"});
    add({"RotaryEmbedding",
         {Shape{2, 4, 8, 6}, Shape{50, 3}, Shape{50, 3}, Shape{2, 8}},
         {},
         1,
         "[2 4 8 6] | b h s d:whole p:whole e:whole | lin:0 saves:1,2,3 | 1152"});
    add({"RotaryEmbedding",
         {Shape{2, 8, 24}, Shape{2, 8, 3}, Shape{2, 8, 3}},
         {{"num_heads", number(4)}},
         1,
         "[2 8 24] | b s h d:whole e:whole | lin:0 saves:1,2 | 1152"});
    add({"Round", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"ScatterElements",
         {Shape{4, 8}, Shape{4, 6}, Shape{4, 6}},
         {{"axis", number(1)}, {"reduction", text("add")}},
         1,
         "[4 8] | x0 v t:sum | lin:0+2 saves:1 add:0 | 0"});
    add({"ScatterElements",
         {Shape{4, 8}, Shape{4, 6}, Shape{4, 6}},
         {{"axis", number(1)}},
         1,
         "[4 8] | x0 v t:whole | lin:0+2 saves:1 | 0"});
    add({"ScatterElements",
         {Shape{6, 8}, Shape{4, 3}, Shape{4, 3}},
         {{"axis", number(1)}, {"reduction", text("max")}},
         1,
         "[6 8] | p0:whole v x0:whole t:whole | saves:0,1,2 | 0"});
    add({"ScatterND",
         {Shape{8, 6}, Shape{4, 1}, Shape{4, 6}},
         {{"reduction", text("add")}},
         1,
         "[8 6] | v0 d0 t0:sum | lin:0+2 saves:1 add:0 | 0"});
    add({"ScatterND",
         {Shape{8, 6}, Shape{4, 1}, Shape{4, 6}},
         {},
         1,
         "[8 6] | v0 d0 t0:whole | lin:0+2 saves:1 | 0"});
    add({"ScatterND",
         {Shape{8, 6}, Shape{4, 2, 2}, Shape{4, 2}},
         {{"reduction", text("mul")}},
         1,
         "[8 6] | v0 v1 t0:whole t1:whole | saves:0,1,2 | 0"});
    add({"ScatterND",
         {Shape{8, 6}, Shape{1}, Shape{6}},
         {},
         1,
         "[8 6] | v0 d0 | lin:0+2 saves:1 | 0"});
    add({"Selu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Shrink", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Sigmoid", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"Sign", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    add({"Silu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Sin", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Sinh", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Slice",
         {Shape{4, 8}},
         {{"starts", list({2})}, {"ends", list({4})}, {"axes", list({1})}},
         1,
         "[4 2] | x0 n1:sum x1 | lin:0 | 0"});
    add({"Slice",
         {Shape{4, 8}},
         {{"starts", list({1})}, {"ends", list({4})}, {"axes", list({1})}},
         1,
         "[4 3] | x0 x1:whole | lin:0 | 0"});
    add({"Slice",
         {Shape{4, 8}},
         {{"starts", list({0, -1})},
          {"ends", list({2147483647, -2147483648})},
          {"steps", list({1, -1})}},
         1,
         "[4 8] | x0 x1:whole | lin:0 | 0"});
    add({"Slice",
         {Shape{12}},
         {{"starts", list({-6})}, {"ends", list({-3})}},
         1,
         "[3] | n0:sum x0 | lin:0 | 0"});
    add({"Slice",
         {Shape{4, 9}},
         {{"starts", list({0})}, {"ends", list({100})}, {"axes", list({-1})}, {"steps", list({2})}},
         1,
         "[4 5] | x0 x1:whole | lin:0 | 0"});
    add({"Softmax",
         {Shape{2, 4, 8}},
         {{"axis", number(1)}},
         1,
         "[2 4 8] | x0 x1:stat x2 | saves:out stat:2/1 | 64"});
    add({"Softmax", {Shape{1}}, {}, 1, "[1] | x0:stat | saves:out stat:2/1 | 1"});
    add({"SoftmaxCrossEntropyLoss",
         {Shape{4, 8, 16}, Shape{4, 8}},
         {{"axis", number(-1)}},
         1,
         "[] | t0:sum t1:sum v:stat | saves:1 stat:3/0 | 512"});
    add({"SoftmaxCrossEntropyLoss",
         {Shape{4, 16}, Shape{4}, Shape{16}},
         {{"reduction", text("none")}},
         1,
         "[4] | t0 v:stat | saves:1,2 stat:4/0 | 64"});
    add({"SoftmaxCrossEntropyLoss",
         {Shape{4, 16}, Shape{4}},
         {{"reduction", text("sum")}},
         2,
         "[] [4 16] | t0:sum v:stat | saves:1 stat:3/1 | 64"});
    add({"SoftmaxCrossEntropyLoss",
         {Shape{4, 6, 8}, Shape{4, 8}},
         {},
         1,
         "[] | t0:sum v:stat t2:sum | saves:1 stat:3/0 | 192"});
    add({"Softplus", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Softsign", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Sort",
         {Shape{4, 8}},
         {{"axis", number(0)}},
         2,
         "[4 8] [4 8] | x0:whole x1 | saves:out | 32"});
    add({"Sort", {Shape{8}}, {}, 1, "[8] | x0:whole | saves:out | 8"});
    add({"Split",
         {Shape{4, 12}},
         {{"axis", number(1)}},
         3,
         "[4 4] [4 4] [4 4] | x0 n:sum d | lin:0 | 0"});
    add({"Split",
         {Shape{4, 12}},
         {{"axis", number(-1)}, {"split", list({8, 4})}},
         2,
         "[4 8] [4 4] | x0 d0:whole d1:whole | lin:0 | 0"});
    add({"Split",
         {Shape{7, 4}},
         {{"num_outputs", number(2)}},
         2,
         "[4 4] [3 4] | x1 d0:whole d1:whole | lin:0 | 0"});
    add({"Split", {Shape{4}}, {}, 1, "[4] | n:sum d | lin:0 | 0"});
    add({"Sqrt", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"Squeeze", {Shape{4, 1, 8}}, {{"axes", list({1})}}, 1, "[4 8] | x0 x1 | lin:0 | 0"});
    add({"Squeeze", {Shape{1, 4, 1}}, {}, 1, "[4] | x0 | lin:0 | 0"});
    add({"Squeeze", {Shape{1}}, {}, 1, "[] |  | lin:0 | 0"});
    add({"Sub", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"Sub", {Shape{4, 1}, Shape{1, 8}}, {}, 1, "[4 8] | x0 x1 | lin:0+1 | 32"});
    add({"Sum", {Shape{4, 8}, Shape{8}, Shape{}}, {}, 1, "[4 8] | x0 x1 | lin:0+1+2 | 32"});
    add({"Sum", {Shape{4}}, {}, 1, "[4] | x0 | lin:0 | 4"});
    add({"Swish", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Tan", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"Tanh", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:out | 32"});
    add({"ThresholdedRelu", {Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 | saves:0 | 32"});
    add({"Tile", {Shape{4, 8}}, {{"repeats", list({1, 3})}}, 1, "[4 24] | x0 x1 n1 | lin:0 | 0"});
    add({"Tile",
         {Shape{4, 6}},
         {{"repeats", list({2, 2})}},
         1,
         "[8 12] | x0 x1 n0 n1 | lin:0 | 0"});
    add({"Tile", {Shape{}}, {{"repeats", list({})}}, 1, "[] |  | lin:0 | 0"});
    add({"TopK",
         {Shape{4, 8}},
         {{"k", number(2)}},
         2,
         "[4 2] [4 2] | x0 j:whole k:whole | saves:out | 32"});
    add({"TopK",
         {Shape{4, 8, 2}},
         {{"k", number(4)}, {"axis", number(1)}},
         2,
         "[4 4 2] [4 4 2] | x0 j:whole x2 k:whole | saves:out | 64"});
    add({"Transpose",
         {Shape{2, 4, 8}},
         {{"perm", list({2, 0, 1})}},
         1,
         "[8 2 4] | x0 x1 x2 | lin:0 | 0"});
    add({"Transpose", {Shape{4, 8}}, {}, 1, "[8 4] | x0 x1 | lin:0 | 0"});
    add({"Transpose", {Shape{}}, {}, 1, "[] |  | lin:0 | 0"});
    add({"Trilu",
         {Shape{2, 4, 8}},
         {{"upper", number(0)}},
         1,
         "[2 4 8] | x0 r:whole c:whole | lin:0 | 0"});
    add({"Unique",
         {Shape{4, 8}},
         {{"size", number(6)}},
         4,
         "[6] [6] [32] [6] | n:whole m:whole | saves:out | 0"});
    add({"Unique",
         {Shape{4, 8}},
         {{"axis", number(1)}},
         1,
         "[4 8] | y0:whole n:whole | saves:out | 0"});
    add({"Unsqueeze",
         {Shape{4, 8}},
         {{"axes", list({0, -1})}},
         1,
         "[1 4 8 1] | x0 x1 | lin:0 | 0"});
    add({"Unsqueeze", {Shape{}}, {{"axes", list({0})}}, 1, "[1] |  | lin:0 | 0"});
    add({"Where",
         {Shape{4, 8}, Shape{4, 8}, Shape{8}},
         {},
         1,
         "[4 8] | x0 x1 | lin:1+2 saves:0 | 32"});
    add({"Where", {Shape{4, 1}, Shape{}, Shape{8}}, {}, 1, "[4 8] | x0 x1 | lin:1+2 saves:0 | 32"});
    add({"Xor", {Shape{4, 8}, Shape{4, 8}}, {}, 1, "[4 8] | x0 x1 |  | 32"});
    return rows;
  }();
  return kExamples;
}

/// The operator as infer_operator takes it; bf16 operands.
inline OperatorSpec spec_of(const OperatorExample& example) {
  OperatorSpec spec;
  spec.type = example.type;
  spec.attributes = example.attributes;
  spec.output_count = example.outputs;
  for (const auto& shape : example.inputs) {
    spec.inputs.push_back(shape ? std::optional<TensorType>({*shape, DType::kBf16}) : std::nullopt);
  }
  return spec;
}

}  // namespace meshplan

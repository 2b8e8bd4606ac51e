// SPDX-License-Identifier: Apache-2.0
// Gradients of the unsharded operators against central differences, along a random direction of
// each operand: 1e-6 relative to the larger of 1 and the slope.
#include "plan/operator_cases.h"
#include "plan/operator_proof.h"
#include "support/catch.h"

namespace meshplan::operator_gradient_test {

using namespace test;
namespace {

/// The sum of all results, weighted.
double weighted(const OperatorCase& c, const TypedOperator& typed, const WholeRun& weights) {
  auto info = std::make_shared<const OperatorInfo>(typed.rule, Sizes{});
  std::vector<std::optional<DeviceTensors>> operands;
  for (const auto& value : c.values)
    operands.push_back(value ? std::optional(DeviceTensors{*value}) : std::nullopt);
  auto run =
      OperatorExecution::forward(call_of(c, typed), info, info->strategies().at(0), seen(operands));
  if (!run) FAIL(run.error().message);
  double total = 0;
  for (std::size_t r = 0; r < run->results().size(); ++r) {
    if (!weights.result_gradients[r]) continue;
    for (std::size_t i = 0; i < weights.result_gradients[r]->values.size(); ++i)
      total += run->results()[r][0].values[i] * weights.result_gradients[r]->values[i];
  }
  return total;
}

TEST_CASE("gradients are the slopes of the results") {
  constexpr double kStep = 1e-5;
  std::size_t compared = 0;
  for (const auto& [type, make] : operator_cases()) {
    Random random(11);
    for (const OperatorCase& c : make(random)) {
      auto typed = infer_operator(c.spec);
      if (!typed) FAIL(type << ": " << typed.error().message);
      auto whole = run_whole(c, *typed, random);
      if (!whole) FAIL(type << ": " << whole.error().message);
      bool differentiable = false;
      for (const auto& gradient : whole->result_gradients)
        differentiable = differentiable || gradient.has_value();
      for (std::size_t i = 0; differentiable && i < c.values.size(); ++i) {
        if (!whole->operand_gradients[i]) continue;
        OperatorCase more = c;
        OperatorCase less = c;
        double slope = 0;
        for (std::size_t j = 0; j < c.values[i]->values.size(); ++j) {
          const double direction = real(random, -1, 1);
          more.values[i]->values[j] += kStep * direction;
          less.values[i]->values[j] -= kStep * direction;
          slope += direction * whole->operand_gradients[i]->values[j];
        }
        const double measured =
            (weighted(more, *typed, *whole) - weighted(less, *typed, *whole)) / (2 * kStep);
        INFO(type << " " << typed->rule->text << ", operand " << i);
        CHECK(slope == Approx(measured).epsilon(1e-6).margin(1e-6));
        ++compared;
      }
    }
  }
  CHECK(compared > 200);
}

}  // namespace
}  // namespace meshplan::operator_gradient_test

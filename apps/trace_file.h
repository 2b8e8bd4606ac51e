// SPDX-License-Identifier: Apache-2.0
// A simulated step as a file that chrome://tracing and Perfetto show.
#pragma once

#include <string>

#include "cost_model/evaluate.h"
#include "plan/plan.h"

namespace meshplan {

/// The trace event format (JSON): one track for the computation; per level of the network one for
/// collectives that the computation waits for and one for those beside it; memory as a counter.
/// Times in microseconds; `args` has seconds, axes, tensor and micro-batch.
std::string write_step_trace(const StepTrace& trace, PriceBook& book, const Plan& plan);

}  // namespace meshplan

// SPDX-License-Identifier: Apache-2.0
// Element by element: functions of one operand, of two with broadcasting, of any number, and those
// that draw random numbers (by global index, so that no sharding changes them).
#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/execution/ops/meanings.h"

namespace meshplan {
namespace {

using Results = std::vector<Var>;
using Slopes = std::pair<double, double>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }

// --- one operand, no attributes ----------------------------------------------------------------

struct Unary {
  std::string_view type;
  double (*f)(double);
  double (*slope)(double x, double y);  ///< nullptr: flat, no gradient
};

double gelu_slope(double x) {
  return 0.5 * (1 + std::erf(x / std::numbers::sqrt2)) +
         x * std::exp(-x * x / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
}

constexpr Unary kUnary[] = {
    {"Abs", [](double x) { return std::abs(x); }, [](double x, double) { return sign(x); }},
    {"Acos",
     [](double x) { return std::acos(x); },
     [](double x, double) { return -1 / std::sqrt(1 - x * x); }},
    {"Acosh",
     [](double x) { return std::acosh(x); },
     [](double x, double) { return 1 / std::sqrt(x * x - 1); }},
    {"Asin",
     [](double x) { return std::asin(x); },
     [](double x, double) { return 1 / std::sqrt(1 - x * x); }},
    {"Asinh",
     [](double x) { return std::asinh(x); },
     [](double x, double) { return 1 / std::sqrt(x * x + 1); }},
    {"Atan",
     [](double x) { return std::atan(x); },
     [](double x, double) { return 1 / (1 + x * x); }},
    {"Atanh",
     [](double x) { return std::atanh(x); },
     [](double x, double) { return 1 / (1 - x * x); }},
    {"BitwiseNot",
     [](double x) { return static_cast<double>(~static_cast<std::int64_t>(x)); },
     nullptr},
    {"Ceil", [](double x) { return std::ceil(x); }, nullptr},
    {"Cos", [](double x) { return std::cos(x); }, [](double x, double) { return -std::sin(x); }},
    {"Cosh", [](double x) { return std::cosh(x); }, [](double x, double) { return std::sinh(x); }},
    {"Erf",
     [](double x) { return std::erf(x); },
     [](double x, double) { return 2 * std::numbers::inv_sqrtpi * std::exp(-x * x); }},
    {"Exp", [](double x) { return std::exp(x); }, [](double, double y) { return y; }},
    {"Floor", [](double x) { return std::floor(x); }, nullptr},
    {"HardSwish",
     [](double x) { return x * std::clamp(x / 6 + 0.5, 0.0, 1.0); },
     [](double x, double) { return x <= -3  ? 0
                                   : x >= 3 ? 1
                                            : x / 3 + 0.5; }},
    {"Identity", [](double x) { return x; }, [](double, double) { return 1.0; }},
    {"IsNaN", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }, nullptr},
    {"Log", [](double x) { return std::log(x); }, [](double x, double) { return 1 / x; }},
    {"Mish",
     [](double x) { return x * std::tanh(softplus(x)); },
     [](double x, double) {
       const double t = std::tanh(softplus(x));
       return t + x * (1 - t * t) * sigmoid(x);
     }},
    {"Neg", [](double x) { return -x; }, [](double, double) { return -1.0; }},
    {"Not", [](double x) { return x == 0 ? 1.0 : 0.0; }, nullptr},
    {"Reciprocal", [](double x) { return 1 / x; }, [](double, double y) { return -y * y; }},
    {"Relu",
     [](double x) { return std::max(x, 0.0); },
     [](double, double y) { return y > 0 ? 1.0 : 0.0; }},
    {"Round", [](double x) { return std::nearbyint(x); }, nullptr},
    {"Sigmoid", sigmoid, [](double, double y) { return y * (1 - y); }},
    {"Sign", sign, nullptr},
    {"Silu",
     [](double x) { return x * sigmoid(x); },
     [](double x, double) {
       const double s = sigmoid(x);
       return s + x * s * (1 - s);
     }},
    {"Sin", [](double x) { return std::sin(x); }, [](double x, double) { return std::cos(x); }},
    {"Sinh", [](double x) { return std::sinh(x); }, [](double x, double) { return std::cosh(x); }},
    {"Softplus", softplus, [](double x, double) { return sigmoid(x); }},
    {"Softsign",
     [](double x) { return x / (1 + std::abs(x)); },
     [](double x, double) { return 1 / ((1 + std::abs(x)) * (1 + std::abs(x))); }},
    {"Sqrt", [](double x) { return std::sqrt(x); }, [](double, double y) { return 0.5 / y; }},
    {"Tan", [](double x) { return std::tan(x); }, [](double, double y) { return 1 + y * y; }},
    {"Tanh", [](double x) { return std::tanh(x); }, [](double, double y) { return 1 - y * y; }},
};

Results unary(const OperatorContext& cx) {
  for (const Unary& row : kUnary) {
    if (row.type != cx.call.type) continue;
    return {row.slope == nullptr ? map(cx.operand(0), row.f)
                                 : map(cx.operand(0), row.f, row.slope)};
  }
  return {cx.tape.fail("no such function")};
}

// --- one operand and attributes ----------------------------------------------------------------

Results celu(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 1);
  return {map(
      cx.operand(0),
      [=](double x) { return x > 0 ? x : alpha * std::expm1(x / alpha); },
      [=](double x, double) { return x > 0 ? 1 : std::exp(x / alpha); })};
}
Results elu(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 1);
  return {map(
      cx.operand(0),
      [=](double x) { return x > 0 ? x : alpha * std::expm1(x); },
      [=](double x, double) { return x > 0 ? 1 : alpha * std::exp(x); })};
}
Results selu(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 1.67326319217681884765625);
  const double gamma = cx.number("gamma", 1.05070102214813232421875);
  return {map(
      cx.operand(0),
      [=](double x) { return gamma * (x > 0 ? x : alpha * std::expm1(x)); },
      [=](double x, double) { return gamma * (x > 0 ? 1 : alpha * std::exp(x)); })};
}
Results gelu(const OperatorContext& cx) {
  if (cx.text("approximate", "none") != "tanh") {
    return {map(
        cx.operand(0),
        [](double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); },
        [](double x, double) { return gelu_slope(x); })};
  }
  constexpr double kScale = 0.79788456080286535588;  // sqrt(2 / pi)
  constexpr double kCubic = 0.044715;
  return {map(
      cx.operand(0),
      [](double x) { return 0.5 * x * (1 + std::tanh(kScale * (x + kCubic * x * x * x))); },
      [](double x, double) {
        const double t = std::tanh(kScale * (x + kCubic * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kScale * (1 + 3 * kCubic * x * x);
      })};
}
Results hard_sigmoid(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 0.2);
  const double beta = cx.number("beta", 0.5);
  return {map(
      cx.operand(0),
      [=](double x) { return std::clamp(alpha * x + beta, 0.0, 1.0); },
      [=](double x, double) {
        const double y = alpha * x + beta;
        return y > 0 && y < 1 ? alpha : 0;
      })};
}
Results is_infinite(const OperatorContext& cx) {
  const bool negative = cx.integer("detect_negative", 1) != 0;
  const bool positive = cx.integer("detect_positive", 1) != 0;
  return {map(cx.operand(0), [=](double x) {
    return std::isinf(x) && (x > 0 ? positive : negative) ? 1.0 : 0.0;
  })};
}
Results leaky_relu(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 0.01);
  return {map(
      cx.operand(0),
      [=](double x) { return x < 0 ? alpha * x : x; },
      [=](double x, double) { return x < 0 ? alpha : 1; })};
}
Results shrink(const OperatorContext& cx) {
  const double bias = cx.number("bias", 0);
  const double lambda = cx.number("lambd", 0.5);
  return {map(
      cx.operand(0),
      [=](double x) { return x < -lambda  ? x + bias
                             : x > lambda ? x - bias
                                          : 0; },
      [=](double x, double) { return std::abs(x) > lambda ? 1.0 : 0.0; })};
}
Results swish(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 1);
  return {map(
      cx.operand(0),
      [=](double x) { return x * sigmoid(alpha * x); },
      [=](double x, double) {
        const double s = sigmoid(alpha * x);
        return s + alpha * x * s * (1 - s);
      })};
}
Results thresholded_relu(const OperatorContext& cx) {
  const double alpha = cx.number("alpha", 1);
  return {map(
      cx.operand(0),
      [=](double x) { return x > alpha ? x : 0; },
      [=](double x, double) { return x > alpha ? 1.0 : 0.0; })};
}

/// To whole numbers towards 0, to truth values, and among floating types unchanged: everything is
/// computed in double.
Results cast(const OperatorContext& cx) {
  const DType to = cx.call.result_types.empty() ? DType::kFp32 : cx.call.result_types[0];
  if (is_floating(to)) {
    return {map(
        cx.operand(0), [](double x) { return x; }, [](double, double) { return 1.0; })};
  }
  if (to == DType::kBool) return {map(cx.operand(0), [](double x) { return x != 0 ? 1.0 : 0.0; })};
  return {map(cx.operand(0), [](double x) { return std::trunc(x); })};
}

// --- two operands ------------------------------------------------------------------------------

struct Binary {
  std::string_view type;
  double (*f)(double, double);
  Slopes (*slopes)(double, double);
};

template <class Combine>
double as_integers(double a, double b, const Combine& combine) {
  return static_cast<double>(combine(static_cast<std::int64_t>(a), static_cast<std::int64_t>(b)));
}

constexpr Binary kBinary[] = {
    {"Add", [](double a, double b) { return a + b; }, [](double, double) { return Slopes(1, 1); }},
    {"And", [](double a, double b) { return a != 0 && b != 0 ? 1.0 : 0.0; }, nullptr},
    {"BitwiseAnd",
     [](double a, double b) {
       return as_integers(a, b, [](std::int64_t x, std::int64_t y) { return x & y; });
     },
     nullptr},
    {"BitwiseOr",
     [](double a, double b) {
       return as_integers(a, b, [](std::int64_t x, std::int64_t y) { return x | y; });
     },
     nullptr},
    {"BitwiseXor",
     [](double a, double b) {
       return as_integers(a, b, [](std::int64_t x, std::int64_t y) { return x ^ y; });
     },
     nullptr},
    {"Div",
     [](double a, double b) { return a / b; },
     [](double a, double b) { return Slopes(1 / b, -a / (b * b)); }},
    {"Equal", [](double a, double b) { return a == b ? 1.0 : 0.0; }, nullptr},
    {"Greater", [](double a, double b) { return a > b ? 1.0 : 0.0; }, nullptr},
    {"GreaterOrEqual", [](double a, double b) { return a >= b ? 1.0 : 0.0; }, nullptr},
    {"Less", [](double a, double b) { return a < b ? 1.0 : 0.0; }, nullptr},
    {"LessOrEqual", [](double a, double b) { return a <= b ? 1.0 : 0.0; }, nullptr},
    {"Mul",
     [](double a, double b) { return a * b; },
     [](double a, double b) { return Slopes(b, a); }},
    {"Or", [](double a, double b) { return a != 0 || b != 0 ? 1.0 : 0.0; }, nullptr},
    {"PRelu",
     [](double a, double b) { return a < 0 ? a * b : a; },
     [](double a, double b) { return a < 0 ? Slopes(b, a) : Slopes(1, 0); }},
    {"Pow",
     [](double a, double b) { return std::pow(a, b); },
     [](double a, double b) {
       return Slopes(b == 0 ? 0 : b * std::pow(a, b - 1), a > 0 ? std::pow(a, b) * std::log(a) : 0);
     }},
    {"Sub", [](double a, double b) { return a - b; }, [](double, double) { return Slopes(1, -1); }},
    {"Xor", [](double a, double b) { return (a != 0) != (b != 0) ? 1.0 : 0.0; }, nullptr},
};

Results binary(const OperatorContext& cx) {
  for (const Binary& row : kBinary) {
    if (row.type != cx.call.type) continue;
    return {row.slopes == nullptr ? map2(cx.operand(0), cx.operand(1), row.f)
                                  : map2(cx.operand(0), cx.operand(1), row.f, row.slopes)};
  }
  return {cx.tape.fail("no such function")};
}

Results bit_shift(const OperatorContext& cx) {
  const bool left = cx.text("direction", "LEFT") == "LEFT";
  return {map2(cx.operand(0), cx.operand(1), [left](double a, double b) {
    return left ? std::ldexp(a, static_cast<int>(b))
                : std::floor(std::ldexp(a, -static_cast<int>(b)));
  })};
}

/// The remainder has the sign of the divisor, with `fmod` that of the dividend.
Results modulo(const OperatorContext& cx) {
  const bool truncated = cx.integer("fmod", 0) != 0;
  const auto quotient = [truncated](double a, double b) {
    return truncated ? std::trunc(a / b) : std::floor(a / b);
  };
  return {map2(
      cx.operand(0),
      cx.operand(1),
      [quotient](double a, double b) { return a - quotient(a, b) * b; },
      [quotient](double a, double b) { return Slopes(1, -quotient(a, b)); })};
}

Var larger(Var a, Var b) {
  return map2(
      a,
      b,
      [](double x, double y) { return std::max(x, y); },
      [](double x, double y) {
        return x == y ? Slopes(0.5, 0.5) : x > y ? Slopes(1, 0) : Slopes(0, 1);
      });
}
Var smaller(Var a, Var b) {
  return map2(
      a,
      b,
      [](double x, double y) { return std::min(x, y); },
      [](double x, double y) {
        return x == y ? Slopes(0.5, 0.5) : x < y ? Slopes(1, 0) : Slopes(0, 1);
      });
}

/// Bounds are operands 1 and 2, or attributes.
Results clip(const OperatorContext& cx) {
  Var y = cx.operand(0);
  const auto bound = [&](std::size_t operand, const char* attribute) -> std::optional<Var> {
    if (cx.has(operand)) return cx.operand(operand);
    if (cx.has_attribute(attribute)) return full(cx.tape, {}, cx.number(attribute, 0));
    return std::nullopt;
  };
  if (const auto low = bound(1, "min")) y = larger(y, *low);
  if (const auto high = bound(2, "max")) y = smaller(y, *high);
  return {y.valid() ? map(
                          y, [](double x) { return x; }, [](double, double) { return 1.0; })
                    : y};
}

Results conditional(const OperatorContext& cx) {
  return {where(cx.operand(0), cx.operand(1), cx.operand(2))};
}

// --- any number of operands --------------------------------------------------------------------

Results variadic(const OperatorContext& cx) {
  Var y = cx.operand(0);
  for (std::size_t i = 1; i < cx.operand_count(); ++i) {
    const Var x = cx.operand(i);
    y = cx.call.type == "Max" ? larger(y, x) : cx.call.type == "Min" ? smaller(y, x) : y + x;
  }
  if (cx.call.type == "Mean") return {y * (1 / static_cast<double>(cx.operand_count()))};
  return {y * 1.0};
}

// --- random numbers ----------------------------------------------------------------------------

/// The ratio is operand 1 or an attribute (0.5); it drops in training alone (operand 2 or an
/// attribute). Second result: what was kept.
Results dropout(const OperatorContext& cx) {
  const auto scalar = [&](std::size_t operand, const char* attribute, double otherwise) {
    return cx.has(operand) ? cx.operand(operand).value().values[0]
                           : cx.number(attribute, otherwise);
  };
  const bool training = scalar(2, "training_mode", 0) != 0;
  const double ratio = training ? scalar(1, "ratio", 0.5) : 0;
  const Var kept = map(cx.uniform(0, 0), [=](double u) { return u >= ratio ? 1.0 : 0.0; });
  return {cx.operand(0) * (kept * (ratio < 1 ? 1 / (1 - ratio) : 0)), kept};
}

Results bernoulli(const OperatorContext& cx) {
  return {
      map2(cx.uniform(0, 0), cx.operand(0), [](double u, double p) { return u < p ? 1.0 : 0.0; })};
}

Results random_normal(const OperatorContext& cx) {
  const double mean = cx.number("mean", 0);
  const double scale = cx.number("scale", 1);
  return {map2(cx.uniform(0, 0), cx.uniform(0, 1), [=](double u, double v) {
    return mean + scale * std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  })};
}

Results random_uniform(const OperatorContext& cx) {
  const double low = cx.number("low", 0);
  const double high = cx.number("high", 1);
  return {map(cx.uniform(0, 0), [=](double u) { return low + (high - low) * u; })};
}

/// Entries on and above (`upper`) or below the k-th diagonal.
Results triangle(const OperatorContext& cx) {
  const bool upper = cx.integer("upper", 1) != 0;
  double k = static_cast<double>(cx.integer("k", 0));
  if (cx.has(1)) k = cx.operand(1).value().values[0];
  const std::size_t rank = cx.operand_shape(0).size();
  const Var kept = map2(cx.operand_positions(0, rank - 2, rank),
                        cx.operand_positions(0, rank - 1, rank),
                        [=](double row, double column) {
                          return (upper ? column >= row + k : column <= row + k) ? 1.0 : 0.0;
                        });
  return {where(kept, cx.operand(0), full(cx.tape, {}, 0))};
}

}  // namespace

std::span<const MeaningRow> elementwise_meanings() {
  static const std::vector<MeaningRow> kRows = [] {
    std::vector<MeaningRow> rows = {
        {"Bernoulli", bernoulli},
        {"BitShift", bit_shift},
        {"Cast", cast},
        {"CastLike", cast},
        {"Celu", celu},
        {"Clip", clip},
        {"Dropout", dropout},
        {"Elu", elu},
        {"Gelu", gelu},
        {"HardSigmoid", hard_sigmoid},
        {"IsInf", is_infinite},
        {"LeakyRelu", leaky_relu},
        {"Max", variadic},
        {"Mean", variadic},
        {"Min", variadic},
        {"Mod", modulo},
        {"RandomNormal", random_normal},
        {"RandomNormalLike", random_normal},
        {"RandomUniform", random_uniform},
        {"RandomUniformLike", random_uniform},
        {"Selu", selu},
        {"Shrink", shrink},
        {"Sum", variadic},
        {"Swish", swish},
        {"ThresholdedRelu", thresholded_relu},
        {"Trilu", triangle},
        {"Where", conditional},
    };
    for (const Unary& row : kUnary) rows.push_back({row.type, unary});
    for (const Binary& row : kBinary) rows.push_back({row.type, binary});
    return rows;
  }();
  return kRows;
}

}  // namespace meshplan

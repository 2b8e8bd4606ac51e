// SPDX-License-Identifier: Apache-2.0
#include "graph/importers/hf_moe.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace meshplan {
namespace {

constexpr std::int64_t kLast = -1;

class ExpertsBuilder {
 public:
  ExpertsBuilder(TransformerBuilder& builder,
                 const Stack& stack,
                 const std::string& layer,
                 const Size& seq)
      : b_(builder),
        stack_(stack),
        moe_(*stack.moe),
        layer_(layer),
        scope_(joined(layer, stack.names.mlp)),
        seq_(seq),
        tokens_("batch*" + std::get<std::string>(seq)) {}

  std::string build(const std::string& x) {
    const std::string flat = b_.reshape(name("tokens"), scope_, x, {tokens_, stack_.hidden});
    const Choice choice = route(flat);
    const std::string mixed = combine(experts(dispatch(flat, choice.experts)), choice);
    const std::string routed =
        b_.reshape(name("routed"), scope_, mixed, {"batch", seq_, stack_.hidden});
    if (moe_.shared_width == 0) return routed;
    return b_.binary("Add", name("with_shared"), scope_, routed, shared(x));
  }

 private:
  struct Choice {
    std::string experts;  ///< numbers, [tokens, top_k]
    std::string weights;  ///< [tokens, top_k]
  };
  using Attributes = DocumentBuilder::Attributes;

  std::string name(const char* last) const { return scope_ + "." + last; }

  std::string op(const char* type,
                 const char* last,
                 std::vector<std::string> inputs,
                 Attributes attributes = {}) {
    return b_.out().add(type, name(last), scope_, std::move(inputs), std::move(attributes));
  }

  /// The best `k` along the last dimension: {values, places}.
  std::pair<std::string, std::string> best(const std::string& x, std::int64_t k, const char* last) {
    const std::string values = name(last);
    const std::string places = values + ".indices";
    b_.out().add("TopK", values, scope_, {x}, {values, places}, {{"k", k}, {"axis", kLast}});
    return {values, places};
  }

  /// Scores of all experts -> 0 for those outside the best groups of experts.
  std::string within_best_groups(const std::string& scores) {
    if (moe_.groups <= 1 || moe_.top_groups >= moe_.groups) return scores;
    const std::int64_t each = moe_.experts / moe_.groups;
    const std::string grouped =
        b_.reshape(name("grouped_scores"), scope_, scores, {tokens_, moe_.groups, each});
    const Attributes last{{"axes", std::vector<Size>{kLast}}, {"keepdims", std::int64_t{0}}};
    std::string group_scores;
    if (moe_.router == Router::kSigmoid) {
      const std::int64_t counted = std::min<std::int64_t>(2, each);
      group_scores =
          op("ReduceSum", "group_scores", {best(grouped, counted, "group_best").first}, last);
    } else {
      group_scores = op("ReduceMax", "group_scores", {grouped}, last);
    }
    const std::string groups = best(group_scores, moe_.top_groups, "best_groups").second;
    const std::string off_on = b_.constant(name("off_on"), {std::int64_t{2}});
    const std::string marks =
        op("OneHot", "group_marks", {groups, off_on}, {{"depth", moe_.groups}});
    const std::string mask =
        op("ReduceSum",
           "group_mask",
           {marks},
           {{"axes", std::vector<Size>{std::int64_t{1}}}, {"keepdims", std::int64_t{0}}});
    const std::string wide =
        b_.reshape(name("wide_group_mask"), scope_, mask, {tokens_, moe_.groups, std::int64_t{1}});
    const std::string kept = op("Mul", "kept_scores", {grouped, wide});
    return b_.reshape(name("choice_scores"), scope_, kept, {tokens_, moe_.experts});
  }

  Choice route(const std::string& x) {
    const std::string router = joined(layer_, stack_.names.router);
    const std::string logits = b_.linear(router, scope_, x, stack_.hidden, moe_.experts, moe_.bias);
    Choice choice;
    switch (moe_.router) {
      case Router::kSoftmax: {
        const std::string scores = op("Softmax", "router_scores", {logits}, {{"axis", kLast}});
        std::tie(choice.weights, choice.experts) =
            best(within_best_groups(scores), moe_.top_k, "best_experts");
        break;
      }
      case Router::kBestSoftmax: {
        const auto [scores, experts] = best(logits, moe_.top_k, "best_experts");
        choice.experts = experts;
        choice.weights = op("Softmax", "router_scores", {scores}, {{"axis", kLast}});
        break;
      }
      case Router::kSigmoid: {
        const std::string scores = op("Sigmoid", "router_scores", {logits});
        // moved by the load of the experts, not by a gradient
        const std::string bias =
            b_.parameter(router + ".e_score_correction_bias", {moe_.experts}, false);
        const std::string biased = op("Add", "biased_scores", {scores, bias});
        choice.experts = best(within_best_groups(biased), moe_.top_k, "best_experts").second;
        choice.weights =
            op("GatherElements", "expert_scores", {scores, choice.experts}, {{"axis", kLast}});
        break;
      }
    }
    if (moe_.normalise && moe_.router != Router::kBestSoftmax) {
      const std::string sum =
          op("ReduceSum",
             "weight_sum",
             {choice.weights},
             {{"axes", std::vector<Size>{kLast}}, {"keepdims", std::int64_t{1}}});
      choice.weights = op("Div", "normalised_weights", {choice.weights, sum});
    }
    if (moe_.scale != 1) choice.weights = b_.scaled(name("scaled_weights"), scope_, choice.weights);
    return choice;
  }

  /// Slots are dealt per sequence, so that sequences can lie on different devices; where a sequence
  /// has fewer choices than there are experts (a decoding step), per group of sequences.
  AttributeDocument groups() const {
    const HfOptions& options = b_.options();
    const std::int64_t seq = options.seq.value_or(1);
    if (seq >= moe_.experts / moe_.top_k) return std::string("batch");
    const std::int64_t least = (moe_.experts - 1) / (seq * moe_.top_k) + 1;  // sequences per group
    std::int64_t groups = 1;
    for (std::int64_t d = 1; d * d <= options.batch; ++d) {
      if (options.batch % d != 0) continue;
      for (const std::int64_t g : {d, options.batch / d}) {
        if (options.batch / g >= least) groups = std::max(groups, g);
      }
    }
    return groups;
  }

  std::string dispatch(const std::string& x, const std::string& experts) {
    return op("MoEDispatch",
              "dispatch",
              {x, experts},
              {{"num_experts", moe_.experts}, {"top_k", moe_.top_k}, {"groups", groups()}});
  }

  std::string combine(const std::string& slots, const Choice& choice) {
    return op("MoECombine",
              "combine",
              {slots, choice.experts, choice.weights},
              {{"top_k", moe_.top_k}, {"groups", groups()}});
  }

  std::string experts_scope() const {
    return parent_scope(joined(layer_, stack_.names.expert_down));
  }

  /// One product per expert: slots [experts, slots, in] -> [experts, slots, out].
  std::string product(std::string_view module,
                      const std::string& x,
                      std::int64_t in,
                      std::int64_t out) {
    const std::string full = joined(layer_, module);
    const std::string scope = experts_scope();
    const std::string y = b_.binary(
        "GroupedMatMul", full, scope, x, b_.parameter(full + ".weight", {moe_.experts, in, out}));
    if (!moe_.bias) return y;
    const std::string bias = b_.parameter(full + ".bias", {moe_.experts, std::int64_t{1}, out});
    return b_.binary("Add", full + ".add_bias", scope, y, bias);
  }

  std::string experts(const std::string& slots) {
    const LayerNames& names = stack_.names;
    const std::string scope = experts_scope();
    const std::string gate = product(names.expert_gate, slots, stack_.hidden, moe_.width);
    const std::string up = product(names.expert_up, slots, stack_.hidden, moe_.width);
    std::string hidden;
    if (moe_.clamped) {
      constexpr double kMost = 7;
      const std::string g =
          b_.out().add("Clip", scope + ".gate_clamp", scope, {gate}, {{"max", kMost}});
      const std::string u =
          b_.out().add("Clip", scope + ".up_clamp", scope, {up}, {{"min", -kMost}, {"max", kMost}});
      const std::string active = b_.activate(stack_.mlp.activation, scope + ".act_fn", scope, g);
      const std::string shifted =
          b_.binary("Add", scope + ".up_shifted", scope, u, b_.constant(scope + ".one", {}));
      hidden = b_.binary("Mul", scope + ".gated", scope, active, shifted);
    } else {
      const std::string active = b_.activate(stack_.mlp.activation, scope + ".act_fn", scope, gate);
      hidden = b_.binary("Mul", scope + ".gated", scope, active, up);
    }
    return product(names.expert_down, hidden, moe_.width, stack_.hidden);
  }

  std::string shared(const std::string& x) {
    const std::string module(stack_.names.shared_experts);
    const std::string gate = module + ".gate_proj";
    const std::string up = module + ".up_proj";
    const std::string down = module + ".down_proj";
    const std::string y =
        mlp_of_layer(b_, stack_, layer_, {module, gate, up, down}, moe_.shared_width, x);
    if (!moe_.shared_gate) return y;
    const std::string score =
        b_.linear(joined(layer_, module + "_gate"), scope_, x, stack_.hidden, 1, false);
    const std::string share = op("Sigmoid", "shared_share", {score});
    return op("Mul", "shared_scaled", {y, share});
  }

  TransformerBuilder& b_;
  const Stack& stack_;
  const MoeModel& moe_;
  std::string layer_;
  std::string scope_;
  Size seq_;
  std::string tokens_;
};

}  // namespace

std::string mlp_of_layer(TransformerBuilder& builder,
                         const Stack& stack,
                         const std::string& layer,
                         const MlpNames& names,
                         std::int64_t width,
                         const std::string& x) {
  const std::string scope = joined(layer, names.scope);
  const bool bias = stack.mlp.bias;
  std::string hidden;
  if (stack.mlp.gated) {
    const std::string gate =
        builder.linear(joined(layer, names.gate), scope, x, stack.hidden, width, bias);
    const std::string up =
        builder.linear(joined(layer, names.up), scope, x, stack.hidden, width, bias);
    const std::string active =
        builder.activate(stack.mlp.activation, scope + ".act_fn", scope, gate);
    hidden = builder.binary("Mul", scope + ".gated", scope, active, up);
  } else {
    const std::string up =
        builder.linear(joined(layer, names.up), scope, x, stack.hidden, width, bias);
    hidden = builder.activate(stack.mlp.activation, scope + ".act_fn", scope, up);
  }
  return builder.linear(joined(layer, names.down), scope, hidden, width, stack.hidden, bias);
}

std::string experts_of_layer(TransformerBuilder& builder,
                             const Stack& stack,
                             const std::string& layer,
                             const std::string& x,
                             const Size& seq) {
  return ExpertsBuilder(builder, stack, layer, seq).build(x);
}

}  // namespace meshplan

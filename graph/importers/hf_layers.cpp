// SPDX-License-Identifier: Apache-2.0
// The layers of a stack: attention, MLP or experts, and the norms and sums around them.
#include <algorithm>
#include <functional>
#include <utility>

#include "graph/importers/hf_moe.h"
#include "graph/importers/hf_transformer.h"

namespace meshplan {
namespace {

class LayerBuilder {
 public:
  LayerBuilder(TransformerBuilder& builder,
               const Stack& stack,
               const StackInput& input,
               std::int64_t number)
      : b_(builder),
        stack_(stack),
        input_(input),
        names_(stack.names),
        attention_(stack.attention),
        number_(static_cast<std::size_t>(number)),
        scope_(stack.scope + "." + std::to_string(number)) {}

  std::string build(const std::string& x) {
    const auto attend = [&](const std::string& y) { return self_attention(y); };
    const auto transform = [&](const std::string& y) { return feed_forward(y); };
    if (stack_.parallel) {
      const std::string normed = norm(names_.attention_norm, x);
      const std::string other = stack_.shared_norm ? normed : norm(names_.mlp_norm, x);
      const std::string attended = residual("attention_residual", x, attend(normed));
      return residual("mlp_residual", attended, transform(other));
    }
    std::string y =
        block(x, names_.attention_norm, names_.attention_post_norm, "attention_residual", attend);
    if (!names_.cross.empty()) {
      y = block(y, names_.cross_norm, "", "cross_residual", [&](const std::string& z) {
        return cross_attention(z);
      });
    }
    return block(y, names_.mlp_norm, names_.mlp_post_norm, "mlp_residual", transform);
  }

 private:
  using Block = std::function<std::string(const std::string&)>;

  std::string in_layer(std::string_view name) const { return joined(scope_, name); }

  std::string norm(std::string_view name, const std::string& x) {
    return b_.norm(stack_.norm, stack_.epsilon, in_layer(name), scope_, x, stack_.hidden);
  }

  std::string residual(const char* name, const std::string& x, const std::string& change) {
    return b_.binary("Add", in_layer(name), scope_, x, change);
  }

  std::string block(const std::string& x,
                    std::string_view before,
                    std::string_view after,
                    const char* sum,
                    const Block& f) {
    switch (stack_.place) {
      case NormPlace::kBefore:
        return residual(sum, x, f(norm(before, x)));
      case NormPlace::kAfter:
        return residual(sum, x, norm(after, f(x)));
      case NormPlace::kAround:
        return residual(sum, x, norm(after, f(norm(before, x))));
      case NormPlace::kAfterAdd:
        return norm(before, residual(sum, x, f(x)));
    }
    return x;
  }

  static std::vector<Size> swap_heads() {
    return {std::int64_t{0}, std::int64_t{2}, std::int64_t{1}, std::int64_t{3}};
  }

  /// [batch, seq, heads * size] -> [batch, seq, heads, size].
  std::string split(const std::string& name,
                    const std::string& x,
                    const Size& seq,
                    std::int64_t heads,
                    std::int64_t size) {
    return b_.reshape(name + "_split", inner_, x, {"batch", seq, heads, size});
  }
  /// [batch, seq, heads, size] -> [batch, heads, seq, size].
  std::string heads_first(const std::string& name, const std::string& x) {
    return b_.out().add("Transpose", name + "_heads", inner_, {x}, {{"perm", swap_heads()}});
  }
  std::string to_heads(const std::string& name,
                       const std::string& x,
                       const Size& seq,
                       std::int64_t heads,
                       std::int64_t size) {
    return heads_first(name, split(name, x, seq, heads, size));
  }

  struct Projection {
    std::string_view module;
    const char* name;  ///< "q", "k", "v"
    std::int64_t heads;
    std::int64_t size;  ///< of a head
    bool bias;
    bool normalised;
  };

  /// One of q, k and v of x [batch, seq, hidden] as [batch, heads, seq, size].
  std::string heads_of(const Projection& p, const std::string& x, const Size& seq) {
    const std::string name = inner_ + "." + p.name;
    const QkNorm kind = p.normalised ? attention_.qk_norm : QkNorm::kNone;
    const std::string norm_name = name + "_norm";
    std::string y =
        b_.linear(in_layer(p.module), inner_, x, stack_.hidden, p.heads * p.size, p.bias);
    if (kind == QkNorm::kAllHeads)
      y = b_.norm(stack_.norm, stack_.epsilon, norm_name, inner_, y, p.heads * p.size);
    y = split(name, y, seq, p.heads, p.size);
    if (kind == QkNorm::kPerHead)
      y = b_.norm(stack_.norm, stack_.epsilon, norm_name, inner_, y, p.size);
    if (kind == QkNorm::kEveryHead) {
      const std::string ones = b_.constant(norm_name + ".ones", {p.size});
      const std::string weight = b_.parameter(norm_name + ".weight", {p.heads, p.size});
      y = b_.out().add("LayerNormalization",
                       norm_name,
                       inner_,
                       {y, ones},
                       {{"axis", std::int64_t{-1}}, {"epsilon", stack_.epsilon}});
      y = b_.binary("Mul", norm_name + ".scaled", inner_, y, weight);
    }
    return heads_first(name, y);
  }

  std::string rotary(const char* which, const std::string& x) {
    if (attention_.rotary_dim == 0) return x;
    const bool local = !stack_.local_rotary.empty() && stack_.local_rotary[number_];
    const std::string table = stack_.rotary + (local ? "_local" : "");
    DocumentBuilder::Attributes attributes;
    const std::int64_t turned =
        attention_.latent ? attention_.latent->rope_dim : attention_.head_dim;
    if (attention_.rotary_dim != turned) attributes["rotary_embedding_dim"] = attention_.rotary_dim;
    if (attention_.interleaved) attributes["interleaved"] = std::int64_t{1};
    return b_.out().add("RotaryEmbedding",
                        inner_ + "." + which + "_rotary",
                        inner_,
                        {x, table + ".cos", table + ".sin"},
                        std::move(attributes));
  }

  std::int64_t window() const { return stack_.window.empty() ? 0 : stack_.window[number_]; }

  std::string state(const char* name, std::vector<Size> shape) {
    return b_.out().tensor(inner_ + "." + name, Role::kState, std::move(shape), b_.dtype());
  }

  struct Heads {
    std::string q;
    std::string k;
    std::string v;
  };

  Heads plain_heads(const std::string& x) {
    const AttentionModel& a = attention_;
    const Size seq = input_.seq;
    Heads heads;
    heads.q = rotary("q", heads_of({names_.q, "q", a.heads, a.head_dim, a.q_bias, true}, x, seq));
    heads.k =
        rotary("k", heads_of({names_.k, "k", a.kv_heads, a.head_dim, a.k_bias, true}, x, seq));
    heads.v = heads_of({names_.v, "v", a.kv_heads, a.value_dim, a.v_bias, false}, x, seq);
    return heads;
  }

  /// Queries and keys are each joined of a part without and a part with positions; the keys' part
  /// with positions is the same for all heads. What is cached is the narrow projection.
  Heads latent_heads(const std::string& x) {
    const AttentionModel& a = attention_;
    const LatentAttention& latent = *a.latent;
    const auto project = [&](const std::string& module,
                             const std::string& from,
                             std::int64_t in,
                             std::int64_t out,
                             bool bias) {
      return b_.linear(inner_ + "." + module, inner_, from, in, out, bias);
    };
    const auto normed = [&](const char* module, const std::string& from, std::int64_t width) {
      return b_.norm(stack_.norm, stack_.epsilon, inner_ + "." + module, inner_, from, width);
    };
    const auto join = [&](const char* name,
                          const std::string& left,
                          const std::string& right,
                          std::int64_t axis) {
      return b_.out().add("Concat", inner_ + "." + name, inner_, {left, right}, {{"axis", axis}});
    };
    const std::string q = inner_ + ".q";
    std::string narrow = x;
    std::int64_t width = stack_.hidden;
    std::string module = "q_proj";
    if (latent.q_rank) {
      width = *latent.q_rank;
      narrow =
          normed("q_a_layernorm", project("q_a_proj", x, stack_.hidden, width, a.q_bias), width);
      module = "q_b_proj";
    }
    const Size seq = input_.seq;
    Heads heads;
    const std::string q_nope =
        to_heads(q + "_nope",
                 project(module + ".nope", narrow, width, a.heads * latent.nope_dim, false),
                 seq,
                 a.heads,
                 latent.nope_dim);
    const std::string q_rope =
        rotary("q",
               to_heads(q + "_rope",
                        project(module + ".rope", narrow, width, a.heads * latent.rope_dim, false),
                        seq,
                        a.heads,
                        latent.rope_dim));
    heads.q = join("q_joined", q_nope, q_rope, 3);

    std::string kv =
        normed("kv_a_layernorm",
               project("kv_a_proj_with_mqa.latent", x, stack_.hidden, latent.kv_rank, a.k_bias),
               latent.kv_rank);
    std::string k_rope = rotary(
        "k",
        to_heads(inner_ + ".k_rope",
                 project("kv_a_proj_with_mqa.rope", x, stack_.hidden, latent.rope_dim, a.k_bias),
                 seq,
                 1,
                 latent.rope_dim));
    Size context = seq;
    if (b_.options().past > 0) {
      context = "context";
      kv = join("kv_latent", state("past_latent", {"batch", "past", latent.kv_rank}), kv, 1);
      k_rope = join("k_rope_context",
                    state("past_k_rope", {"batch", std::int64_t{1}, "past", latent.rope_dim}),
                    k_rope,
                    2);
    }
    const std::string k_nope =
        to_heads(inner_ + ".k_nope",
                 project("kv_b_proj.k", kv, latent.kv_rank, a.heads * latent.nope_dim, false),
                 context,
                 a.heads,
                 latent.nope_dim);
    const std::string spread =
        b_.out().add("Expand",
                     inner_ + ".k_rope_expanded",
                     inner_,
                     {k_rope},
                     {{"shape", std::vector<Size>{"batch", a.heads, context, latent.rope_dim}}});
    heads.k = join("k_joined", k_nope, spread, 3);
    heads.v = to_heads(inner_ + ".v",
                       project("kv_b_proj.v", kv, latent.kv_rank, a.heads * a.value_dim, false),
                       context,
                       a.heads,
                       a.value_dim);
    return heads;
  }

  /// Attention as one operator: [batch, heads, seq, value size].
  std::string fused_core(const Heads& heads, bool causal, bool cached, bool masked) {
    const AttentionModel& a = attention_;
    DocumentBuilder::Attributes attributes;
    if (causal) attributes["is_causal"] = std::int64_t{1};
    if (a.scale) attributes["scale"] = *a.scale;
    if (a.softcap > 0) attributes["softcap"] = a.softcap;
    if (window() > 0) attributes["sliding_window"] = window();
    std::vector<std::string> inputs{heads.q, heads.k, heads.v};
    const auto put = [&](std::size_t at, const std::string& tensor) {
      if (inputs.size() <= at) inputs.resize(at + 1);
      inputs[at] = tensor;
    };
    if (masked && !a.mask.empty()) put(3, a.mask);
    if (cached) {
      const std::int64_t past = b_.options().past;
      const Size kept = window() > 0 && window() < past ? Size(window()) : Size("past");
      put(4, state("past_key", {"batch", a.kv_heads, kept, a.head_dim}));
      put(5, state("past_value", {"batch", a.kv_heads, kept, a.value_dim}));
    }
    if (a.sinks) put(7, b_.parameter(inner_ + ".sinks", {a.heads}));
    return b_.out().add(
        "Attention", inner_ + ".attention", inner_, std::move(inputs), std::move(attributes));
  }

  /// The same as products around a softmax, in a scope of their own so that they can be recomputed
  /// alone. Heads that share keys and values are a dimension of the queries, which those lack. The
  /// scale is applied to the queries, which are smaller than the scores.
  std::string eager_core(const Heads& heads, bool causal, bool masked, const Size& keys) {
    const AttentionModel& a = attention_;
    const std::string scope = inner_ + ".core";
    const auto named = [&](const char* name) { return scope + "." + name; };
    const std::int64_t sharing = a.latent ? 1 : a.heads / a.kv_heads;
    const Size seq = input_.seq;
    std::string q = b_.scaled(named("scaled"), inner_, heads.q);
    std::string k = heads.k;
    std::string v = heads.v;
    if (sharing > 1) {
      const Size one = std::int64_t{1};
      q = b_.reshape(named("q_groups"), inner_, q, {"batch", a.kv_heads, sharing, seq, a.head_dim});
      k = b_.reshape(named("k_groups"), inner_, k, {"batch", a.kv_heads, one, keys, a.head_dim});
      v = b_.reshape(named("v_groups"), inner_, v, {"batch", a.kv_heads, one, keys, a.value_dim});
    }
    std::string scores =
        b_.out().add("MatMul", named("scores"), scope, {q, k}, {{"transpose_b", std::int64_t{1}}});
    if (a.softcap > 0) scores = b_.softcapped(named("capped"), scope, scores);
    if (masked && !a.mask.empty()) {
      std::string mask = a.mask;
      if (sharing > 1) {  // a score per head and key
        mask = b_.reshape(
            named("mask_groups"), inner_, mask, {a.kv_heads, sharing, std::int64_t{1}, keys});
      }
      scores = b_.binary("Add", named("shifted"), scope, scores, mask);
    }
    if (causal) {  // 0 where a token may look, else minus infinity
      const std::string kind = window() > 0 ? "window_" + std::to_string(window()) : "causal";
      const std::string mask =
          b_.shared_constant(joined(stack_.scope, kind + "_mask"), {seq, keys});
      scores = b_.binary("Add", named("masked"), scope, scores, mask);
    }
    std::string weights =
        b_.out().add("Softmax", named("softmax"), scope, {scores}, {{"axis", std::int64_t{-1}}});
    if (b_.drops_attention()) {
      const std::string all = std::exchange(weights, named("dropout"));
      b_.out().add("Dropout", weights, scope, {all}, {weights, weights + ".mask"}, {});
    }
    const std::string mixed = b_.binary("MatMul", named("context"), scope, weights, v);
    if (sharing == 1) return mixed;
    return b_.reshape(named("heads"), inner_, mixed, {"batch", a.heads, seq, a.value_dim});
  }

  /// Attention over heads to `keys` tokens, back to [batch, seq, hidden].
  std::string attend(const Heads& heads,
                     bool causal,
                     bool cached,
                     std::string_view out_module,
                     bool masked,
                     const Size& keys) {
    const AttentionModel& a = attention_;
    const std::string mixed = b_.options().eager_attention
                                  ? eager_core(heads, causal, masked, keys)
                                  : fused_core(heads, causal, cached, masked);
    const std::string back = b_.out().add(
        "Transpose", inner_ + ".merge_heads", inner_, {mixed}, {{"perm", swap_heads()}});
    const std::int64_t width = a.heads * a.value_dim;
    const std::string merged =
        b_.reshape(inner_ + ".merge", inner_, back, {"batch", input_.seq, width});
    return b_.linear(in_layer(out_module), inner_, merged, width, stack_.hidden, a.out_bias);
  }

  std::string self_attention(const std::string& x) {
    inner_ = in_layer(names_.attention);
    const bool cached = attention_.causal && b_.options().past > 0;
    const Heads heads = attention_.latent ? latent_heads(x) : plain_heads(x);
    // behind a cache of narrow projections, every new token may see all that was joined before it
    const bool causal = attention_.causal && !(cached && attention_.latent);
    return attend(heads, causal, cached && !attention_.latent, names_.out, true, input_.seq);
  }

  std::string cross_attention(const std::string& x) {
    inner_ = in_layer(names_.cross);
    const AttentionModel& a = attention_;
    const auto named = [&](std::string_view of_self) {
      return joined(names_.cross, of_self.substr(of_self.rfind('.') + 1));
    };
    const std::string q = named(names_.q);
    const std::string k = named(names_.k);
    const std::string v = named(names_.v);
    Heads heads;
    heads.q = heads_of({q, "q", a.heads, a.head_dim, a.q_bias, false}, x, input_.seq);
    heads.k = heads_of(
        {k, "k", a.kv_heads, a.head_dim, a.k_bias, false}, input_.encoded, input_.encoded_seq);
    heads.v = heads_of(
        {v, "v", a.kv_heads, a.value_dim, a.v_bias, false}, input_.encoded, input_.encoded_seq);
    return attend(heads, false, false, named(names_.out), false, input_.encoded_seq);
  }

  std::string feed_forward(const std::string& x) {
    if (!stack_.sparse.empty() && stack_.sparse[number_])
      return experts_of_layer(b_, stack_, scope_, x, input_.seq);
    const MlpNames names{names_.mlp, names_.gate, names_.up, names_.down};
    return mlp_of_layer(b_, stack_, scope_, names, stack_.mlp.width, x);
  }

  TransformerBuilder& b_;
  const Stack& stack_;
  const StackInput& input_;
  const LayerNames& names_;
  const AttentionModel& attention_;
  std::size_t number_;
  std::string scope_;
  std::string inner_;  ///< scope of the attention that is being built
};

}  // namespace

std::string TransformerBuilder::layers(const Stack& stack, const StackInput& input) {
  const AttentionModel& attention = stack.attention;
  const bool local = std::find(stack.local_rotary.begin(), stack.local_rotary.end(), true) !=
                     stack.local_rotary.end();
  for (const char* kind : {"", "_local"}) {
    if (attention.rotary_dim == 0 || (*kind != '\0' && !local)) continue;
    for (const char* table : {".cos", ".sin"})
      constant(stack.rotary + kind + table, {input.seq, attention.rotary_dim / 2});
  }
  std::string x = input.x;
  for (std::int64_t i = 0; i < stack.layers; ++i) x = LayerBuilder(*this, stack, input, i).build(x);
  return x;
}

}  // namespace meshplan

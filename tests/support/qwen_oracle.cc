#include "support/qwen_oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "format/tensor_values.h"
#include "trellis/decode.h"

namespace pergola::testing {

namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  // one vector a token

double logistic(double x) {
  return 1 / (1 + std::exp(-x));
}
double swish(double x) {
  return x / (1 + std::exp(-x));
}

class Oracle {
 public:
  Oracle(const Checkpoint& checkpoint, const TinyQwen& model) : checkpoint_(checkpoint), m_(model) {}

  Vector logits(std::span<const std::int32_t> tokens) const {
    const Vector table = tensor(m_.prefix + "embed_tokens.weight");
    Rows x;
    for (const std::int32_t token : tokens)
      x.emplace_back(table.begin() + token * m_.hidden, table.begin() + (token + 1) * m_.hidden);
    for (std::size_t i = 0; i < m_.full_attention.size(); ++i) {
      const std::string key = fmt::format("{}layers.{}.", m_.prefix, i);
      const Rows mixed = m_.full_attention[i] ? attention(key + "self_attn.", norms(key + "input_layernorm", x))
                                              : delta_net(key + "linear_attn.", norms(key + "input_layernorm", x));
      add(x, mixed);
      const Rows u = norms(key + "post_attention_layernorm", x);
      add(x, m_.experts > 0 ? moe(key + "mlp.", u) : mlp(key + "mlp.", u));
    }
    const Rows final = norms(m_.prefix + "norm", x);
    const Rows out = m_.tied ? multiply(table, final, m_.vocab) : linear("lm_head", final, m_.vocab);
    Vector all;
    for (const Vector& row : out) all.insert(all.end(), row.begin(), row.end());
    return all;
  }

 private:
  /// All values of a dense tensor.
  Vector tensor(const std::string& name) const {
    const TensorEntry& entry = checkpoint_.require(name);
    const std::vector<float> values = to_floats({entry.dtype, 1, entry.elements(), entry.bytes});
    return {values.begin(), values.end()};
  }

  /// weight [out, in] times every row.
  static Rows multiply(const Vector& weight, const Rows& x, std::int64_t out) {
    Rows y;
    for (const Vector& row : x) {
      Vector& result = y.emplace_back(static_cast<std::size_t>(out), 0.0);
      for (std::size_t j = 0; j < result.size(); ++j) {
        for (std::size_t i = 0; i < row.size(); ++i) result[j] += weight[j * row.size() + i] * row[i];
      }
    }
    return y;
  }

  Rows linear(const std::string& key, const Rows& x, std::int64_t out) const {
    const auto in = static_cast<std::int64_t>(x.front().size());
    if (checkpoint_.find(key + ".trellis") == nullptr) return multiply(tensor(key + ".weight"), x, out);
    const LinearView view = checkpoint_.linear(key, in, out);
    const TrellisView& trellis = *view.trellis();
    const Vector padded = effective_weight(trellis);
    Vector weight;
    for (std::int64_t j = 0; j < out; ++j) {
      const auto row = padded.begin() + j * trellis.in_features;
      weight.insert(weight.end(), row, row + in);
    }
    return multiply(weight, x, out);
  }

  static void add(Rows& x, const Rows& delta) {
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += delta[t][i];
    }
  }

  /// x * rsqrt(mean x^2 + eps) * (1 + w) over n values.
  void norm_one_plus(const Vector& w, double* x) const {
    double squares = 0;
    for (std::size_t i = 0; i < w.size(); ++i) squares += x[i] * x[i];
    for (std::size_t i = 0; i < w.size(); ++i)
      x[i] *= (1 + w[i]) / std::sqrt(squares / static_cast<double>(w.size()) + m_.eps);
  }

  Rows norms(const std::string& key, Rows x) const {
    const Vector w = tensor(key + ".weight");
    for (Vector& row : x) norm_one_plus(w, row.data());
    return x;
  }

  void rotate(double* head, std::size_t position) const {
    const auto dims = static_cast<std::int64_t>(static_cast<double>(m_.head_dim) * m_.partial_rotary);
    for (std::int64_t j = 0; j < dims / 2; ++j) {
      const double angle = static_cast<double>(position) *
                           std::pow(m_.rope_theta, -2.0 * static_cast<double>(j) / static_cast<double>(dims));
      const double a = head[j];
      const double b = head[j + dims / 2];
      head[j] = a * std::cos(angle) - b * std::sin(angle);
      head[j + dims / 2] = a * std::sin(angle) + b * std::cos(angle);
    }
  }

  Rows attention(const std::string& key, const Rows& u) const {
    Rows q = linear(key + "q_proj", u, 2 * m_.heads * m_.head_dim);
    Rows k = linear(key + "k_proj", u, m_.kv_heads * m_.head_dim);
    const Rows v = linear(key + "v_proj", u, m_.kv_heads * m_.head_dim);
    const Vector q_norm = tensor(key + "q_norm.weight");
    const Vector k_norm = tensor(key + "k_norm.weight");
    for (std::size_t t = 0; t < u.size(); ++t) {
      for (std::int64_t h = 0; h < m_.heads; ++h) {
        double* head = q[t].data() + 2 * h * m_.head_dim;
        norm_one_plus(q_norm, head);
        rotate(head, t);
      }
      for (std::int64_t h = 0; h < m_.kv_heads; ++h) {
        norm_one_plus(k_norm, k[t].data() + h * m_.head_dim);
        rotate(k[t].data() + h * m_.head_dim, t);
      }
    }
    Rows mixed(u.size(), Vector(static_cast<std::size_t>(m_.heads * m_.head_dim), 0.0));
    for (std::size_t t = 0; t < u.size(); ++t) {
      for (std::int64_t h = 0; h < m_.heads; ++h) {
        const std::int64_t kv = h * m_.kv_heads / m_.heads * m_.head_dim;
        const double* query = q[t].data() + 2 * h * m_.head_dim;
        Vector p;
        for (std::size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (std::int64_t i = 0; i < m_.head_dim; ++i) score += query[i] * k[s][static_cast<std::size_t>(kv + i)];
          p.push_back(std::exp(score / std::sqrt(static_cast<double>(m_.head_dim))));
        }
        double total = 0;
        for (const double w : p) total += w;
        for (std::int64_t i = 0; i < m_.head_dim; ++i) {
          double sum = 0;
          for (std::size_t s = 0; s <= t; ++s) sum += p[s] / total * v[s][static_cast<std::size_t>(kv + i)];
          mixed[t][static_cast<std::size_t>(h * m_.head_dim + i)] = sum * logistic(query[m_.head_dim + i]);
        }
      }
    }
    return linear(key + "o_proj", mixed, m_.hidden);
  }

  /// silu of the causal convolution of every channel.
  Rows convolve(const std::string& key, const Rows& m) const {
    const Vector w = tensor(key + "conv1d.weight");
    Rows c = m;
    for (std::size_t t = 0; t < m.size(); ++t) {
      for (std::size_t ch = 0; ch < m[t].size(); ++ch) {
        double sum = 0;
        for (std::int64_t back = 0; back < m_.conv_kernel && back <= static_cast<std::int64_t>(t); ++back) {
          sum += w[(ch + 1) * static_cast<std::size_t>(m_.conv_kernel) - 1 - static_cast<std::size_t>(back)] *
                 m[t - static_cast<std::size_t>(back)][ch];
        }
        c[t][ch] = swish(sum);
      }
    }
    return c;
  }

  Vector l2(const Vector& c, std::int64_t first) const {
    double squares = 0;
    for (std::int64_t i = 0; i < m_.key_dim; ++i) squares += std::pow(c[static_cast<std::size_t>(first + i)], 2);
    Vector unit;
    for (std::int64_t i = 0; i < m_.key_dim; ++i)
      unit.push_back(c[static_cast<std::size_t>(first + i)] / std::sqrt(squares + 1e-6));
    return unit;
  }

  Rows delta_net(const std::string& key, const Rows& u) const {
    const Rows c = convolve(key, linear(key + "in_proj_qkv", u, m_.channels()));
    const Rows z = linear(key + "in_proj_z", u, m_.value_heads * m_.value_dim);
    const Rows b = linear(key + "in_proj_b", u, m_.value_heads);
    const Rows a = linear(key + "in_proj_a", u, m_.value_heads);
    const Vector a_log = tensor(key + "A_log");
    const Vector dt_bias = tensor(key + "dt_bias");
    const Vector w = tensor(key + "norm.weight");
    Rows y(u.size(), Vector(static_cast<std::size_t>(m_.value_heads * m_.value_dim)));
    for (std::int64_t h = 0; h < m_.value_heads; ++h) {
      const std::int64_t key_head = h * m_.key_heads / m_.value_heads;
      const auto head = static_cast<std::size_t>(h);
      Rows state(static_cast<std::size_t>(m_.key_dim), Vector(static_cast<std::size_t>(m_.value_dim), 0.0));
      for (std::size_t t = 0; t < u.size(); ++t) {
        const Vector q = l2(c[t], key_head * m_.key_dim);
        const Vector k = l2(c[t], (m_.key_heads + key_head) * m_.key_dim);
        const double alpha = std::exp(-std::exp(a_log[head]) * std::log1p(std::exp(a[t][head] + dt_bias[head])));
        const double beta = logistic(b[t][head]);
        Vector o;
        double squares = 0;
        for (std::size_t j = 0; j < static_cast<std::size_t>(m_.value_dim);
             ++j) {  // one column of the state at a time, in a single pass
          double r = 0;
          double p = 0;
          double qk = 0;
          for (std::size_t i = 0; i < k.size(); ++i) {
            r += state[i][j] * k[i];
            p += state[i][j] * q[i];
            qk += q[i] * k[i];
          }
          const double v = c[t][static_cast<std::size_t>(2 * m_.key_heads * m_.key_dim + h * m_.value_dim) + j];
          const double d = beta * (v - alpha * r);
          for (std::size_t i = 0; i < k.size(); ++i) state[i][j] = alpha * state[i][j] + k[i] * d;
          o.push_back((alpha * p + qk * d) / std::sqrt(static_cast<double>(m_.key_dim)));
          squares += o.back() * o.back();
        }
        for (std::size_t j = 0; j < o.size(); ++j) {
          const std::size_t at = head * o.size() + j;
          y[t][at] = w[j] * o[j] / std::sqrt(squares / static_cast<double>(o.size()) + m_.eps) * swish(z[t][at]);
        }
      }
    }
    return linear(key + "out_proj", y, m_.hidden);
  }

  /// down(silu(g) * u) where g and u are given.
  static Rows gate(const Rows& g, const Rows& u) {
    Rows result = g;
    for (std::size_t t = 0; t < g.size(); ++t) {
      for (std::size_t i = 0; i < g[t].size(); ++i) result[t][i] = swish(g[t][i]) * u[t][i];
    }
    return result;
  }

  Rows mlp(const std::string& key, const Rows& u) const {
    const Rows h = gate(linear(key + "gate_proj", u, m_.intermediate), linear(key + "up_proj", u, m_.intermediate));
    return linear(key + "down_proj", h, m_.hidden);
  }

  Rows expert(const std::string& key, std::int64_t e, const Rows& u) const {
    if (!m_.fused_experts) return mlp(fmt::format("{}experts.{}.", key, e), u);
    const Vector gate_up = tensor(key + "experts.gate_up_proj");
    const Vector down = tensor(key + "experts.down_proj");
    const auto part = [](const Vector& v, std::int64_t first, std::int64_t count) {
      return Vector(v.begin() + first, v.begin() + first + count);
    };
    const std::int64_t size = m_.intermediate * m_.hidden;
    const Rows g = multiply(part(gate_up, 2 * e * size, size), u, m_.intermediate);
    const Rows up = multiply(part(gate_up, (2 * e + 1) * size, size), u, m_.intermediate);
    return multiply(part(down, e * size, size), gate(g, up), m_.hidden);
  }

  /// Every expert on every token; unchosen ones weigh nothing.
  Rows moe(const std::string& key, const Rows& u) const {
    const Rows router = linear(key + "gate", u, m_.experts);
    const Rows shared_gate = linear(key + "shared_expert_gate", u, 1);
    Rows out = mlp(key + "shared_expert.", u);
    Rows weights;
    for (std::size_t t = 0; t < u.size(); ++t) {
      for (double& value : out[t]) value *= logistic(shared_gate[t][0]);
      weights.push_back(routing(router[t]));
    }
    for (std::int64_t e = 0; e < m_.experts; ++e) {
      Rows y = expert(key, e, u);
      for (std::size_t t = 0; t < u.size(); ++t) {
        for (double& value : y[t]) value *= weights[t][static_cast<std::size_t>(e)];
      }
      add(out, y);
    }
    return out;
  }

  /// Softmax over all experts, the largest top_k kept and renormalised.
  Vector routing(const Vector& logits) const {
    Vector p;
    double total = 0;
    for (const double l : logits) p.push_back(std::exp(l));
    for (const double w : p) total += w;
    for (double& w : p) w /= total;
    Vector sorted = p;
    std::sort(sorted.rbegin(), sorted.rend());
    const double smallest = sorted[static_cast<std::size_t>(m_.top_k - 1)];
    double kept = 0;
    for (double& w : p) kept += w = w >= smallest ? w : 0;
    for (double& w : p) w /= kept;
    return p;
  }

  const Checkpoint& checkpoint_;
  const TinyQwen& m_;
};

}  // namespace

std::vector<double> oracle_logits(const Checkpoint& checkpoint, const TinyQwen& model,
                                  std::span<const std::int32_t> tokens) {
  return Oracle(checkpoint, model).logits(tokens);
}

}  // namespace pergola::testing

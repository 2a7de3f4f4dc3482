// SPDX-License-Identifier: Apache-2.0
#include "model/weight_packer.hpp"

#include "core/error.hpp"
#include "numerics/bf16.hpp"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace bathys::model {
namespace {

using catalog::DatasetSpec;
using catalog::Dtype;
using kernels::WeightKind;
using kernels::WeightRows;

WeightKind kind_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return WeightKind::fp4;
    case Dtype::f8_e4m3:
      return WeightKind::fp8;
    case Dtype::bf16:
      return WeightKind::bf16;
    default:
      return WeightKind::f32;
  }
}

// The tensor's name within its layer: "attn.wq_a.weight" of "layers.3.attn.wq_a.weight".
std::string within_layer(const std::string& name) {
  if (!name.starts_with("layers.")) return name;
  return name.substr(name.find('.', 7) + 1);
}

// Stored columns, rows and bytes of a local slice seen as a matrix: axis 0 of a stack of matrices is flattened into
// rows.
struct Flat {
  std::int64_t rows = 1;
  std::int64_t columns = 1;  // stored elements of a row
};
Flat flatten(const DatasetSpec& dataset, const catalog::Slice& local) {
  std::vector<std::int64_t> shape = dataset.shape;
  shape[static_cast<std::size_t>(local.axis)] = local.size();
  Flat flat;
  flat.columns = shape.size() == 1 ? 1 : shape.back();
  for (std::size_t axis = 0; axis + (shape.size() == 1 ? 0 : 1) < shape.size(); ++axis) flat.rows *= shape[axis];
  return flat;
}

}  // namespace

// Where one dataset goes.
class WeightPacker::Destination {
 public:
  virtual ~Destination() = default;
  virtual void piece(std::int64_t first_row, std::int64_t rows, const std::uint8_t* bytes) = 0;
  virtual void end() = 0;
};

// Bytes kept as they are.
class WeightPacker::Plain : public Destination {
 public:
  Plain(const std::string& label, std::int64_t rows, std::int64_t row_bytes)
      : data(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), static_cast<std::size_t>(rows * row_bytes)),
        row_bytes_(row_bytes) {}
  void piece(std::int64_t first_row, std::int64_t rows, const std::uint8_t* bytes) override {
    const auto begin = first_row * row_bytes_;
    Kokkos::View<const std::uint8_t*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> from(
        bytes, static_cast<std::size_t>(rows * row_bytes_));
    Kokkos::deep_copy(Kokkos::subview(data, Kokkos::make_pair(begin, begin + rows * row_bytes_)), from);
  }
  void end() override {}

  Vec<std::uint8_t> data;

 private:
  std::int64_t row_bytes_;
};

// Scales on the host, whole, until their weight has been packed.
class WeightPacker::Scales : public Destination {
 public:
  explicit Scales(const Flat& flat)
      : rows(flat.rows), row_bytes(flat.columns), bytes(static_cast<std::size_t>(flat.rows * flat.columns)) {}
  void piece(std::int64_t first_row, std::int64_t n, const std::uint8_t* from) override {
    std::memcpy(bytes.data() + first_row * row_bytes, from, static_cast<std::size_t>(n * row_bytes));
  }
  void end() override {}

  std::int64_t rows, row_bytes;
  std::vector<std::uint8_t> bytes;
};

// A matrix, or matrices stacked along the rows, packed as rows arrive.  Panels take whole groups of 32 rows, so rows
// that do not yet fill one wait in `pending_`.
class WeightPacker::Matrix : public Destination {
 public:
  struct Cut {
    std::int64_t count = 1;        // matrices stacked along the rows
    std::int64_t column_cuts = 1;  // equal column ranges, each a matrix of its own (wo_b's output groups)
  };

  Matrix(const DatasetSpec& dataset, const Flat& flat, const Cut& cut, const Scales* scales, PackedLinear& out)
      : kind_(kind_of(dataset.dtype)),
        count_(cut.count),
        cuts_(cut.column_cuts),
        n_(flat.rows / std::max<std::int64_t>(cut.count, 1)),
        k_(flat.columns * (kind_ == WeightKind::fp4 ? 2 : 1) / cut.column_cuts),
        row_bytes_(flat.columns * catalog::element_bytes(dataset.dtype)),
        scales_(scales),
        scale_block_(dataset.block),
        out_(out),
        one_(static_cast<std::int64_t>(kernels::packed_bytes(kind_, n_, k_))),
        data_(Kokkos::view_alloc(dataset.name, Kokkos::WithoutInitializing),
              static_cast<std::size_t>(one_ * count_ * cuts_)),
        host_(Kokkos::create_mirror_view(data_)) {
    for (std::int64_t m = 0; m < count_ * cuts_; ++m) kernels::clear_packed(kind_, n_, k_, host_.data() + m * one_);
  }

  void piece(std::int64_t first_row, std::int64_t rows, const std::uint8_t* bytes) override {
    const std::int64_t expected = matrix_ * n_ + row_ + pending_rows_;
    require(first_row == expected, ExitCode::internal, "weights: rows from {} were delivered, the next row is {}",
            first_row, expected);
    while (rows > 0) {
      const std::int64_t left = n_ - row_ - pending_rows_;  // of the current matrix
      std::int64_t take = 0;
      if (pending_rows_ == 0 && (rows >= left || rows >= kStep)) {
        take = rows >= left ? left : rows / kStep * kStep;
        pack(take, bytes);
      } else {
        take = std::min({rows, left, kStep - pending_rows_});
        pending_.insert(pending_.end(), bytes, bytes + take * row_bytes_);
        pending_rows_ += take;
        if (pending_rows_ == kStep || take == left) {
          pack(std::exchange(pending_rows_, 0), pending_.data());
          pending_.clear();
        }
      }
      rows -= take;
      bytes += take * row_bytes_;
    }
  }

  void end() override {
    require(matrix_ == count_ && row_ == 0, ExitCode::internal, "weights: {} of {} rows were delivered",
            matrix_ * n_ + row_, n_ * count_);
    Kokkos::deep_copy(data_, host_);
    out_ = PackedLinear{.kind = kind_, .n = n_, .k = k_, .count = count_ * cuts_, .data = data_};
  }

  [[nodiscard]] std::int64_t bytes() const { return one_ * count_ * cuts_; }

 private:
  static constexpr std::int64_t kStep = 32;
  using HostBytes = decltype(Kokkos::create_mirror_view(Vec<std::uint8_t>()));

  // Packs the next `rows` rows of the current matrix.
  void pack(std::int64_t rows, const std::uint8_t* bytes) {
    for (std::int64_t cut = 0; cut < cuts_; ++cut) {
      WeightRows source;
      source.codes = bytes + cut * (row_bytes_ / cuts_);
      source.code_stride = row_bytes_;
      if (scales_ != nullptr) {
        // The scale dataset stacks and cuts as its weight does.
        const std::int64_t scale_rows = (n_ + scale_block_[0] - 1) / scale_block_[0];
        source.scale_stride = scales_->row_bytes;
        source.scales = scales_->bytes.data() + (matrix_ * scale_rows + row_ / scale_block_[0]) * scales_->row_bytes +
                        cut * (scales_->row_bytes / cuts_);
      }
      kernels::pack_rows(kind_, n_, k_, row_, rows, source, host_.data() + (matrix_ * cuts_ + cut) * one_);
    }
    row_ += rows;
    if (row_ == n_) {
      row_ = 0;
      ++matrix_;
    }
  }

  WeightKind kind_;
  std::int64_t count_, cuts_, n_, k_, row_bytes_;
  const Scales* scales_;
  std::array<int, 2> scale_block_;
  PackedLinear& out_;
  std::int64_t one_;
  Vec<std::uint8_t> data_;
  HostBytes host_;
  std::int64_t matrix_ = 0, row_ = 0;  // the next row to pack
  std::vector<std::uint8_t> pending_;
  std::int64_t pending_rows_ = 0;
};

WeightPacker::WeightPacker(const config::ModelConfig& config, const catalog::RankPlace& place)
    : config_(config), place_(place) {
  weights_.layers.resize(static_cast<std::size_t>(config_.n_layers));
}

WeightPacker::~WeightPacker() = default;

bool WeightPacker::wants(const DatasetSpec& dataset) {
  return dataset.part != catalog::Part::draft && dataset.part != catalog::Part::vision;
}

namespace {

template <class T>
Vec<const T> as_vector(const Vec<std::uint8_t>& bytes) {
  return UnmanagedView<const T*>(reinterpret_cast<const T*>(bytes.data()), bytes.extent(0) / sizeof(T));
}
template <class T>
Mat<const T> as_matrix(const Vec<std::uint8_t>& bytes, std::int64_t rows, std::int64_t columns) {
  return UnmanagedView<const T**>(reinterpret_cast<const T*>(bytes.data()), static_cast<std::size_t>(rows),
                                  static_cast<std::size_t>(columns));
}

}  // namespace

// Puts each dataset's destination together with the place in the model that it fills.
void WeightPacker::begin(const DatasetSpec& dataset, const catalog::Slice& local) {
  const Flat flat = flatten(dataset, local);
  const std::string inner = within_layer(dataset.name);
  auto make_scales = [&] {
    auto scales = std::make_unique<Scales>(flat);
    current_scales_ = scales.get();
    scales_[dataset.name] = std::move(scales);
  };
  auto make_plain = [&](auto fill) {
    auto plain = std::make_unique<Plain>(dataset.name, flat.rows, flat.columns * catalog::element_bytes(dataset.dtype));
    weights_.storage.push_back(plain->data);
    weights_.packed_bytes += static_cast<std::int64_t>(plain->data.extent(0));
    fill(plain->data);
    current_ = std::move(plain);
  };
  auto make_matrix = [&](PackedLinear& out, Matrix::Cut cut = {}) {
    const auto scales = scales_.find(dataset.scale);
    require(dataset.scale.empty() || scales != scales_.end(), ExitCode::internal,
            "weights: {} came before its scales {}", dataset.name, dataset.scale);
    auto matrix =
        std::make_unique<Matrix>(dataset, flat, cut, dataset.scale.empty() ? nullptr : scales->second.get(), out);
    weights_.packed_bytes += matrix->bytes();
    current_ = std::move(matrix);
  };
  auto to_bf16 = [&](Vec<const bf16>& out) {
    make_plain([&](const Vec<std::uint8_t>& b) { out = as_vector<bf16>(b); });
  };
  auto to_f32 = [&](Vec<const float>& out) {
    make_plain([&](const Vec<std::uint8_t>& b) { out = as_vector<float>(b); });
  };

  if (dataset.layer < 0) {
    if (dataset.name == "embed.weight") {
      weights_.first_vocab = local.begin;
      make_plain([&](const Vec<std::uint8_t>& b) { weights_.embed = as_matrix<bf16>(b, flat.rows, flat.columns); });
    } else if (dataset.name == "head.weight") {
      make_matrix(weights_.head);
    } else if (dataset.name == "norm.weight") {
      to_bf16(weights_.norm);
    } else {
      fail(ExitCode::internal, "weights: no place for {}", dataset.name);
    }
    return;
  }
  LayerWeights& layer = weights_.layers[static_cast<std::size_t>(dataset.layer)];
  const bool engram_table = inner == "engram.embed.weight" || inner == "engram.embed.scale";
  if (dataset.dtype == Dtype::f8_e8m0 && !engram_table) {
    make_scales();
  } else if (inner.starts_with("hc_")) {
    kernels::HyperConnectionWeights& hc = inner.starts_with("hc_attn") ? layer.hc_attn : layer.hc_ffn;
    if (inner.ends_with("_fn")) {
      make_plain([&](const Vec<std::uint8_t>& b) { hc.fn = as_matrix<float>(b, flat.rows, flat.columns); });
    } else {
      to_f32(inner.ends_with("_scale") ? hc.scale : hc.base);
    }
  } else if (inner == "attn_norm.weight" || inner == "ffn_norm.weight") {
    to_bf16(inner == "attn_norm.weight" ? layer.attn_norm : layer.ffn_norm);
  } else if (inner.starts_with("attn.compressor.") || inner == "attn.indexer.wk.weight" ||
             inner == "attn.indexer.k_norm.weight") {
    if (!layer.compressor) layer.compressor.emplace();
    CompressorWeights& c = *layer.compressor;
    if (inner == "attn.compressor.wkv.weight") {
      make_matrix(c.wkv);
    } else if (inner == "attn.compressor.wgate.weight") {
      make_matrix(c.wgate.emplace());
    } else if (inner == "attn.compressor.norm.weight") {
      to_bf16(c.norm);
    } else if (inner == "attn.indexer.wk.weight") {
      make_matrix(c.index_key);
    } else {
      to_bf16(c.key_norm);
    }
  } else if (inner.starts_with("attn.indexer.")) {
    if (!layer.indexer) layer.indexer.emplace();
    make_matrix(inner == "attn.indexer.wq_b.weight" ? layer.indexer->wq_b : layer.indexer->weights_proj);
  } else if (inner.starts_with("attn.")) {
    AttentionWeights& a = layer.attention;
    const std::int64_t groups = config_.o_groups / place_.tensor_ranks;
    if (inner == "attn.wq_a.weight") {
      make_matrix(a.wq_a);
    } else if (inner == "attn.wq_b.weight") {
      make_matrix(a.wq_b);
    } else if (inner == "attn.wkv.weight") {
      make_matrix(a.wkv);
    } else if (inner == "attn.wo_a.weight") {
      make_matrix(a.wo_a, {.count = groups});
    } else if (inner == "attn.wo_b.weight") {
      make_matrix(a.wo_b, {.column_cuts = groups});
    } else if (inner == "attn.attn_sink") {
      to_f32(a.sink);
    } else {
      to_bf16(inner == "attn.q_norm.weight" ? a.q_norm : a.kv_norm);
    }
  } else if (inner.starts_with("ffn.")) {
    ExpertWeights& e = layer.experts;
    if (inner == "ffn.gate.weight") {
      make_matrix(e.router);
    } else if (inner == "ffn.gate.bias" || inner == "ffn.gate.bias_vl") {
      to_f32(inner == "ffn.gate.bias" ? e.bias : e.bias_image);
    } else {
      const bool routed = inner.starts_with("ffn.experts.");
      SwigluWeights& swiglu = routed ? e.routed : e.shared;
      if (routed) {
        e.first_local = static_cast<int>(local.begin);
        e.local = static_cast<int>(local.size());
      }
      const Matrix::Cut cut{.count = routed ? local.size() : 1};
      make_matrix(inner.ends_with(".w1.weight")   ? swiglu.gate
                  : inner.ends_with(".w3.weight") ? swiglu.up
                                                  : swiglu.down,
                  cut);
    }
  } else if (inner.starts_with("engram.")) {
    if (!layer.engram) layer.engram.emplace();
    EngramWeights& g = *layer.engram;
    if (inner == "engram.embed.weight") {
      g.first_row = local.begin;
      make_plain([&](const Vec<std::uint8_t>& b) { g.codes = as_matrix<std::uint8_t>(b, flat.rows, flat.columns); });
    } else if (inner == "engram.embed.scale") {
      make_plain([&](const Vec<std::uint8_t>& b) { g.scales = as_matrix<std::uint8_t>(b, flat.rows, flat.columns); });
    } else if (inner == "engram.wkv.weight") {
      make_matrix(g.wkv);
    } else {
      make_plain([&](const Vec<std::uint8_t>& b) {
        (inner == "engram.q_weight" ? g.q_weight : g.k_weight) = as_matrix<bf16>(b, flat.rows, flat.columns);
      });
    }
  } else {
    fail(ExitCode::internal, "weights: no place for {}", dataset.name);
  }
}

void WeightPacker::piece(const DatasetSpec& dataset, std::int64_t first_row, std::int64_t rows,
                         std::span<const std::byte> bytes) {
  Destination* destination = current_scales_ != nullptr ? static_cast<Destination*>(current_scales_) : current_.get();
  try {
    destination->piece(first_row, rows, reinterpret_cast<const std::uint8_t*>(bytes.data()));
  } catch (const Error& cause) {
    fail(cause.code(), "{}: {}: {}", dataset.file, dataset.name, cause.what());
  }
}

void WeightPacker::end(const DatasetSpec& dataset) {
  if (current_scales_ != nullptr) {
    current_scales_ = nullptr;
  } else {
    current_->end();
    current_.reset();
    scales_.erase(dataset.scale);
  }
  ended_.insert(dataset.name);
}

ModelWeights WeightPacker::take() {
  for (const DatasetSpec& dataset : catalog::dataset_table(config_)) {
    require(!wants(dataset) || ended_.contains(dataset.name), ExitCode::internal, "weights: {} was not delivered",
            dataset.name);
  }
  return std::move(weights_);
}

}  // namespace bathys::model

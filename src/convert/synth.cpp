// SPDX-License-Identifier: Apache-2.0
#include "convert/synth.hpp"

#include "convert/synthetic_tokenizer.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "io/hash.hpp"

#include <span>
#include <utility>

namespace bathys::convert {
namespace {

std::string mark_text(const SourceModel& model) {
  Json mark;
  mark["generator_version"] = catalog::kSyntheticVersion;
  mark["seed"] = model.synthetic->seed();
  mark["config_sha256"] = io::sha256_hex(model.index.config_json);
  mark["tokenizer_sha256"] = io::sha256_hex(model.index.tokenizer_json);
  return mark.dump(1) + "\n";
}

}  // namespace

SourceModel synthesize(const std::string& config_path, const SynthOptions& options) {
  SourceModel::Texts texts;
  texts.config_name = config_path;
  texts.config = io::read_checkpoint_text(config_path);
  if (options.tokenizer.empty()) {
    texts.tokenizer_name = "the synthetic tokenizer.json";
    texts.tokenizer = synthetic_tokenizer_json(config::read_model_config(texts.config, config_path));
  } else {
    texts.tokenizer_name = options.tokenizer;
    texts.tokenizer = io::read_checkpoint_text(options.tokenizer);
  }
  return {std::move(texts), options.seed};
}

ReleaseReport write_checkpoint(parallel::Collectives& world, const SourceModel& model, const std::string& folder,
                               const ReleaseOptions& options) {
  require(model.synthetic.has_value(), ExitCode::internal, "only a synthetic model is written as a checkpoint");
  ReleaseSource source;
  source.config = model.config;
  source.texts = &model.index;
  source.read = [&](const catalog::TensorSpec& spec, std::uint64_t offset, std::span<std::byte> out) {
    model.synthetic->read(spec.name, offset, out);
  };
  source.mark_name = "synthetic.json";
  source.mark_text = mark_text(model);
  return write_release(world, source, folder, options);
}

ReleaseReport write_checkpoint(const SourceModel& model, const std::string& folder) {
  return write_checkpoint(*parallel::make_single_collectives(), model, folder);
}

}  // namespace bathys::convert

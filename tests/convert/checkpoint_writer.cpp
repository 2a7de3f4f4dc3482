// SPDX-License-Identifier: Apache-2.0
#include "convert/checkpoint_writer.hpp"

#include "config/engram_layout.hpp"
#include "config/model_config.hpp"
#include "io/checkpoint.hpp"
#include "io/temp_folder.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

void copy_small_files(const std::string& from, const std::string& to) {
  std::filesystem::create_directories(to);
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    if (std::filesystem::exists(from + "/" + name)) {
      std::filesystem::copy_file(from + "/" + name, to + "/" + name, std::filesystem::copy_options::overwrite_existing);
    }
  }
}

}  // namespace

std::vector<LooseTensor> read_loose(const std::string& folder) {
  const io::Checkpoint checkpoint(folder);
  std::vector<LooseTensor> tensors;
  for (const auto& file : checkpoint.files()) {
    for (const io::TensorInfo& tensor : file->tensors()) {
      LooseTensor& loose =
          tensors.emplace_back(LooseTensor{tensor.name, tensor.dtype, tensor.shape, std::string(tensor.bytes, '\0')});
      file->file().read_at(tensor.offset, std::as_writable_bytes(std::span(loose.bytes)));
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const LooseTensor& a, const LooseTensor& b) { return a.name < b.name; });
  return tensors;
}

LooseTensor& find(std::vector<LooseTensor>& tensors, const std::string& name) {
  const auto found = std::find_if(tensors.begin(), tensors.end(), [&](const LooseTensor& t) { return t.name == name; });
  if (found == tensors.end()) throw std::runtime_error("no tensor " + name);
  return *found;
}

void write_checkpoint(const std::string& folder, const std::string& small_files_of,
                      const std::vector<LooseTensor>& tensors, int n_files) {
  copy_small_files(small_files_of, folder);
  for (int file = 0; file < n_files; ++file) {
    std::vector<io::TensorInfo> infos;
    std::vector<const LooseTensor*> members;
    for (std::size_t i = static_cast<std::size_t>(file); i < tensors.size(); i += static_cast<std::size_t>(n_files)) {
      infos.push_back({tensors[i].name, tensors[i].dtype, tensors[i].shape, 0, tensors[i].bytes.size()});
      members.push_back(&tensors[i]);
    }
    io::SafetensorsWriter writer(folder + "/part-" + std::to_string(file) + ".safetensors", infos);
    for (const LooseTensor* tensor : members) writer.append(std::as_bytes(std::span(tensor->bytes)));
    writer.commit();
  }
}

NanoCheckpoint::NanoCheckpoint(std::string folder) : folder_(std::move(folder)), tensors_(read_loose(kNano)) {
  write_checkpoint(folder_, kNano, tensors_);
}

void NanoCheckpoint::flip(const std::string& tensor, std::size_t byte) {
  find(tensors_, tensor).bytes.at(byte) ^= 1;
  write_checkpoint(folder_, kNano, tensors_);
}

std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    all[entry.path().filename().string()] = slurp(entry.path().string());
  return all;
}

void expect_same_folder(const std::string& a, const std::string& b) {
  const auto left = contents(a);
  const auto right = contents(b);
  ASSERT_EQ(left.size(), right.size());
  for (const auto& [name, bytes] : left) {
    ASSERT_TRUE(right.contains(name)) << name;
    EXPECT_TRUE(right.at(name) == bytes) << name << " differs";
  }
}

std::string nano_with_tables(std::int64_t engram_vocab_size, int engram_head_dim) {
  config::ModelConfig config = config::read_model_config(slurp(kNano + "/config.json"), "config.json");
  config.engram_vocab_size = engram_vocab_size;
  config.engram_head_dim = engram_head_dim;
  config.engram_num_embeddings.clear();
  for (const auto& layer : config::engram_layout(config).layers) config.engram_num_embeddings.push_back(layer.rows);
  return config::to_inference_json(config);
}

void write_random_checkpoint(const std::string& folder, const std::string& config_json, const std::string& tokenizer_of,
                             std::int64_t hole_bytes) {
  copy_small_files(tokenizer_of, folder);
  spit(folder + "/config.json", config_json);
  const auto table = catalog::tensor_table(config::read_model_config(config_json, "config.json"));
  std::vector<io::TensorInfo> infos;
  std::vector<io::TensorInfo> holes;
  for (const catalog::TensorSpec& spec : table) {
    (spec.bytes() >= hole_bytes ? holes : infos)
        .push_back({spec.name, std::string(catalog::safetensors_dtype(spec.dtype)), spec.shape, 0,
                    static_cast<std::uint64_t>(spec.bytes())});
  }
  io::SafetensorsWriter writer(folder + "/model.safetensors", infos);
  std::uint64_t counter = 0;
  std::string bytes;
  for (const io::TensorInfo& info : infos) {
    bytes.resize(static_cast<std::size_t>(info.bytes));
    for (char& byte : bytes) {
      counter += 0x9e3779b97f4a7c15U;
      const std::uint64_t mixed = (counter ^ counter >> 29U) * 0xbf58476d1ce4e5b9U;
      byte = static_cast<char>(info.dtype == "F8_E8M0" ? 120 + (mixed >> 61U) : mixed >> 56U);
      if (info.dtype == "F8_E4M3" && (byte & 0x7f) == 0x7f) byte ^= 1;  // no NaN
    }
    writer.append(std::as_bytes(std::span(bytes)));
  }
  writer.commit();
  for (const io::TensorInfo& hole : holes) {
    const std::string header = fmt::format(R"({{"{}":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}})", hole.name,
                                           hole.dtype, io::shape_text(hole.shape), hole.bytes);
    const std::uint64_t length = header.size();
    const std::string path = folder + "/hole-" + hole.name + ".safetensors";
    spit(path, std::string(reinterpret_cast<const char*>(&length), sizeof length) + header);
    std::filesystem::resize_file(path, sizeof length + length + hole.bytes);
  }
}

}  // namespace bathys::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/safetensors.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace bathys::io {

// Where a tensor lies: a file of the checkpoint and its entry there.
struct TensorPlace {
  const SafetensorsFile* file = nullptr;
  const TensorInfo* tensor = nullptr;
};

// The safetensors files of a checkpoint folder, as one set of tensors.
//   * With `model.safetensors.index.json` its weight_map says which files belong: plain file names inside the folder
//   (symbolic links may lead
//     elsewhere).  Every tensor must stand in the file the map names, and no listed file may hold a tensor the map
//     lacks.  Other
//     *.safetensors files of the folder are ignored, each with a warning.
//   * Without it all *.safetensors files belong, and a name that two of them hold is refused.
//   throws Error(bad_input) naming file and tensor
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& folder);
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // By file name.
  [[nodiscard]] const std::vector<std::unique_ptr<SafetensorsFile>>& files() const { return files_; }
  // Every tensor by its name in the files.
  [[nodiscard]] const std::unordered_map<std::string, TensorPlace>& tensors() const { return tensors_; }

 private:
  void open_by_index(const std::string& index_path);
  void open_by_glob();
  void add(std::unique_ptr<SafetensorsFile> file);

  std::string folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unordered_map<std::string, TensorPlace> tensors_;
};

// Reads a text file of a checkpoint whole; a Git LFS pointer, HTML page, empty file or zeros are refused by name.
//   throws Error(bad_input)
std::string read_checkpoint_text(const std::string& path);

}  // namespace bathys::io

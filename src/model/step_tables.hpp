// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace bathys::model {

// The tables of one step that kernels read: gathered on the host, uploaded by one copy into a buffer that is kept from
// step to step.  Views that an upload has set hold until the next clear().
class StepTables {
 public:
  // Forgets the last step's tables; kernels that read them may still run.
  void clear() {
    host_.clear();
    pending_.clear();
  }

  // `view` [n] becomes the device copy of `host` at the next upload; it must stay where it is until then.  An empty
  // table leaves an empty View.
  template <class T>
  void add(kernels::Vec<const T>& view, const std::vector<T>& host) {
    view = {};
    if (host.empty()) return;
    const std::size_t offset = append(host.data(), host.size() * sizeof(T));
    pending_.push_back([&view, offset, n = host.size()](const std::uint8_t* base) {
      view = kernels::Vec<const T>(reinterpret_cast<const T*>(base + offset), n);
    });
  }
  // The same as a matrix, rows one after another.
  template <class T>
  void add(kernels::Mat<const T>& view, std::size_t columns, const std::vector<T>& host) {
    view = {};
    if (host.empty()) return;
    const std::size_t offset = append(host.data(), host.size() * sizeof(T));
    pending_.push_back([&view, offset, rows = host.size() / columns, columns](const std::uint8_t* base) {
      view = kernels::Mat<const T>(reinterpret_cast<const T*>(base + offset), rows, columns);
    });
  }

  // Enqueues the copy on `exec` and sets the Views.
  void upload(const Exec& exec);

 private:
  // Copies bytes to an aligned place and returns its offset.
  std::size_t append(const void* data, std::size_t bytes);

  std::vector<std::uint8_t> host_;
  std::vector<std::function<void(const std::uint8_t*)>> pending_;
  kernels::Vec<std::uint8_t> device_;
};

}  // namespace bathys::model

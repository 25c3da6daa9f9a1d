// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>

#include "base/errors.h"

namespace ddp::comm {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t kPage = nccl::kWindowAlignment;
  return std::max<std::size_t>((bytes + kPage - 1) / kPage, 1) * kPage;
}

}  // namespace

struct Arena::Piece {
  Piece(const DeviceLibraries& used_libraries, int on_device, std::size_t size)
      : libraries(used_libraries), device(on_device), bytes(size) {
    const cuda::DeviceScope scope(libraries.device, device);
    void* memory = nullptr;
    if (by_nccl()) {
      const int code = libraries.nccl.allocate(&memory, bytes);
      if (code != nccl::kSuccess) refuse(libraries.nccl.error_string(code));
    } else {
      const int code = libraries.device.allocate(&memory, bytes);
      if (code != cuda::kSuccess) refuse(libraries.device.error_string(code));
    }
    base = static_cast<std::byte*>(memory);
  }
  Piece(const Piece&) = delete;
  Piece& operator=(const Piece&) = delete;
  ~Piece() {
    const cuda::DeviceScope scope(libraries.device, device);
    by_nccl() ? libraries.nccl.free(base) : libraries.device.free(base);
  }

  bool by_nccl() const { return libraries.nccl.allocate != nullptr; }
  [[noreturn]] void refuse(const char* why) const {
    throw RuntimeError(
        fmt::format("cannot allocate {} bytes on the GPU for communication: {}", bytes, why));
  }

  DeviceLibraries libraries;
  int device;
  std::size_t bytes;
  std::size_t used = 0;
  std::byte* base = nullptr;
  nccl::Window window = nullptr;  // at most one of the two is set
  void* handle = nullptr;
};

std::shared_ptr<Arena::Piece> Arena::find_room(std::size_t bytes, Group& host) {
  // A piece is unused only if no rank has a pointer to it. The last two values show whether all
  // ranks ask for the same size.
  std::vector<std::int64_t> common;
  for (const auto& piece : pieces_) common.push_back(piece.use_count() == 1 ? 1 : 0);
  common.push_back(static_cast<std::int64_t>(bytes));
  common.push_back(-static_cast<std::int64_t>(bytes));
  host.all_reduce(buffer_of(std::span(common)), ReduceOp::min, "memory of GPUs").wait();
  const std::int64_t largest = -common[pieces_.size() + 1];
  if (common[pieces_.size()] != largest) {
    throw RuntimeError(fmt::format(
        "the ranks allocate different amounts of memory on their GPUs, {} to {} bytes; all ranks "
        "must allocate the same sizes in the same order",
        common[pieces_.size()], largest));
  }
  bool used_before = false;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (common[i] == 1) used_before = std::exchange(pieces_[i]->used, 0) > 0 || used_before;
  }
  if (used_before) wait_for_device();
  for (const auto& piece : pieces_) {
    if (piece->bytes - piece->used >= bytes) return piece;
  }
  return nullptr;
}

// Memory without an owner may still be used by kernels of the program, such as the update
// of parameters from gradients, on streams that this class does not know.
void Arena::wait_for_device() {
  const auto& calls = libraries_.device;
  const cuda::DeviceScope scope(calls, device_);
  check_device(calls, calls.synchronize(), "finish the work that uses released memory");
}

std::shared_ptr<Arena::Piece> Arena::add_piece(std::size_t bytes, Group& host, const Run& run) {
  std::shared_ptr<Piece> piece;
  std::string error;
  try {
    // Next to a large buffer, most of a piece would often remain unused.
    const bool is_large = bytes > piece_bytes_ / 4;
    piece = std::make_shared<Piece>(libraries_, device_, is_large ? bytes : piece_bytes_);
  } catch (const RuntimeError& e) {
    error = e.what();
  }
  const auto errors = host.all_gather_text(error);
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    if (!errors[rank].empty()) {
      throw RuntimeError(
          fmt::format("rank {} {}", host.world_rank(static_cast<int>(rank)), errors[rank]));
    }
  }
  run("registration of memory", [this, piece](Communicator& communicator, DeviceStream) {
    if (libraries_.nccl.add_window != nullptr) {
      communicator.register_window(piece->base, piece->bytes, &piece->window);
    } else if (libraries_.nccl.add != nullptr) {
      communicator.register_memory(piece->base, piece->bytes, &piece->handle);
    }
  });
  pieces_.push_back(piece);
  return piece;
}

std::shared_ptr<std::byte> Arena::allocate(std::size_t bytes, Group& host, const Run& run) {
  const std::size_t length = whole_pages(bytes);
  auto piece = find_room(length, host);
  if (!piece) piece = add_piece(length, host, run);
  std::byte* const begin = piece->base + std::exchange(piece->used, piece->used + length);
  run("zeros in new memory", [this, begin, length](Communicator&, DeviceStream stream) {
    const auto& calls = libraries_.device;
    check_device(calls, calls.set_bytes(begin, 0, length, stream), "fill memory with zeros");
  });
  return {std::move(piece), begin};
}

void Arena::release(Communicator& communicator) {
  for (const auto& piece : pieces_) {
    if (piece->window != nullptr) {
      communicator.deregister_window(std::exchange(piece->window, nullptr));
    } else if (piece->handle != nullptr) {
      communicator.deregister_memory(std::exchange(piece->handle, nullptr));
    }
    settle(communicator, [] {});
  }
}

std::size_t Arena::bytes_in_use() const noexcept {
  std::size_t sum = 0;
  for (const auto& piece : pieces_) sum += piece.use_count() > 1 ? piece->bytes : 0;
  return sum;
}

}  // namespace ddp::comm

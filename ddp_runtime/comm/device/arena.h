// SPDX-License-Identifier: Apache-2.0
// Device memory of a group, for buffers that are communicated again and again. It is registered
// with NCCL once, in large pieces at the same offsets on all ranks, because registration takes
// milliseconds and NCCL's fastest paths need it, and all ranks must then use registered memory in
// the same collective.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/device/communicator.h"
#include "ddp_runtime/comm/group/group.h"

namespace ddp::comm {

// Used by one thread.
class Arena {
 public:
  // Runs a call of NCCL in the order of launches and waits until it is done.
  using Run =
      std::function<void(const char* what, std::function<void(Communicator&, DeviceStream)>)>;

  Arena(const DeviceLibraries& libraries, int device, std::size_t piece_bytes)
      : libraries_(libraries), device_(device), piece_bytes_(piece_bytes) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Zeroed memory whose address is a multiple of 4096. Collective: all ranks ask for the same size.
  // Pieces that no rank uses anymore are used again, when the device has done all its work. Throws
  // RuntimeError on all ranks if one of them does not have the memory or asks for another size.
  std::shared_ptr<std::byte> allocate(std::size_t bytes, Group& host, const Run& run);
  // Undoes the registrations at the end. The memory stays until the last pointer to it is gone.
  void release(Communicator& communicator);
  // Of the pieces of which this rank uses something.
  std::size_t bytes_in_use() const noexcept;

 private:
  struct Piece;

  // Returns a piece with room for `bytes` bytes; nullptr if there is none. Collective.
  std::shared_ptr<Piece> find_room(std::size_t bytes, Group& host);
  std::shared_ptr<Piece> add_piece(std::size_t bytes, Group& host, const Run& run);
  void wait_for_device();

  DeviceLibraries libraries_;
  int device_;
  std::size_t piece_bytes_;
  std::vector<std::shared_ptr<Piece>> pieces_;
};

}  // namespace ddp::comm

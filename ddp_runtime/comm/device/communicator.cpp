// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/communicator.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "base/text.h"
#include "ddp_runtime/comm/device/nccl_types.h"
#include "ddp_runtime/comm/group/peer_failure.h"

namespace ddp::comm {
namespace {

// What helps with NCCL's most frequent errors.
std::string_view advice_for(int code) {
  switch (code) {
    case nccl::kUnhandledCudaError:
      return "; an earlier error of the GPU may be the cause, and NCCL_DEBUG=WARN shows more";
    case nccl::kSystemError:
      return "; check the network and /dev/shm, and NCCL_DEBUG=WARN shows more";
    case nccl::kRemoteError:
      return "; another rank exited, or the network failed";
    default:
      return "; NCCL_DEBUG=WARN shows more";
  }
}

}  // namespace

Communicator::Communicator(const DeviceLibraries& libraries, const nccl::UniqueId& id,
                           const Rank& rank)
    : libraries_(libraries) {
  nccl::Config config;
  config.blocking = 0;
  if (rank.max_ctas > 0) config.max_ctas = rank.max_ctas;
  const int code = libraries_.nccl.init_rank_config(&comm_, rank.size, id, rank.rank, &config);
  if (code == nccl::kSuccess || code == nccl::kInProgress) return;
  try {
    fail("connect the GPUs", code);
  } catch (...) {
    abort();  // it may exist nevertheless
    throw;
  }
}

Communicator::~Communicator() {
  abort();
}

void Communicator::fail(std::string_view what, int code) const {
  const auto& nccl = libraries_.nccl;
  const char* more = nccl.last_error == nullptr ? nullptr : nccl.last_error(comm_);
  const std::string detail =
      more == nullptr || *more == '\0' ? "" : fmt::format(" ({})", sanitize_lines(more, 300));
  const std::string text = fmt::format("NCCL cannot {}: {}{}{}", what, nccl.error_string(code),
                                       detail, advice_for(code));
  // The other process has the cause, or is the cause.
  if (code == nccl::kRemoteError) throw BrokenCollective(Symptom::remote_error, text);
  throw RuntimeError(text);
}

template <class Call>
void Communicator::call(std::string_view what, const Call& function) {
  const std::lock_guard lock(calls_);
  // After an abort by another thread.
  if (comm_ == nullptr) throw RuntimeError(fmt::format("NCCL cannot {} after a failure", what));
  const int code = function(libraries_.nccl);
  if (code != nccl::kSuccess && code != nccl::kInProgress) fail(what, code);
}

bool Communicator::settled() {
  int state = nccl::kSuccess;
  call("complete a call", [&](const auto& nccl) {
    const int code = nccl.get_async_error(comm_, &state);
    return code == nccl::kSuccess ? state : code;
  });
  return state != nccl::kInProgress;
}

void Communicator::throw_if_failed() {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock || comm_ == nullptr) return;
  int state = nccl::kSuccess;
  const auto& nccl = libraries_.nccl;
  const int code = nccl.get_async_error(comm_, &state);
  const int found = code == nccl::kSuccess ? state : code;
  if (found != nccl::kSuccess && found != nccl::kInProgress) fail("complete a collective", found);
}

void Communicator::all_reduce(const Buffer& data, ReduceOp op, DeviceStream stream) {
  call("reduce", [&](const auto& nccl) {
    return nccl.all_reduce(data.data, data.data, data.count, nccl_type(data.type), nccl_op(op),
                           comm_, stream);
  });
}

void Communicator::reduce_scatter(const Buffer& input, const Buffer& output, ReduceOp op,
                                  DeviceStream stream) {
  call("reduce and scatter", [&](const auto& nccl) {
    return nccl.reduce_scatter(input.data, output.data, output.count, nccl_type(input.type),
                               nccl_op(op), comm_, stream);
  });
}

void Communicator::all_gather(const Buffer& input, const Buffer& output, DeviceStream stream) {
  call("gather", [&](const auto& nccl) {
    return nccl.all_gather(input.data, output.data, input.count, nccl_type(input.type), comm_,
                           stream);
  });
}

void Communicator::broadcast(const Buffer& data, int root, DeviceStream stream) {
  call("broadcast", [&](const auto& nccl) {
    return nccl.broadcast(data.data, data.data, data.count, nccl_type(data.type), root, comm_,
                          stream);
  });
}

void Communicator::exchange(std::span<const Message> messages, DeviceStream stream) {
  call("exchange messages", [&](const auto& nccl) {
    int worst = nccl.group_start();
    for (const auto& [outgoing, data, peer] : messages) {
      const int type = nccl_type(data.type);
      const int code = outgoing ? nccl.send(data.data, data.count, type, peer, comm_, stream)
                                : nccl.receive(data.data, data.count, type, peer, comm_, stream);
      if (code != nccl::kSuccess && code != nccl::kInProgress) worst = code;
    }
    const int end = nccl.group_end();  // also after an error, because groups are per thread
    return worst == nccl::kSuccess ? end : worst;
  });
}

void Communicator::register_window(std::byte* memory, std::size_t bytes, nccl::Window* window) {
  call("register memory", [&](const auto& nccl) {
    return nccl.add_window(comm_, memory, bytes, window, nccl::kWindowCollSymmetric);
  });
}

void Communicator::register_memory(std::byte* memory, std::size_t bytes, void** handle) {
  call("register memory", [&](const auto& nccl) { return nccl.add(comm_, memory, bytes, handle); });
}

void Communicator::deregister_window(nccl::Window window) {
  call("deregister memory", [&](const auto& nccl) { return nccl.remove_window(comm_, window); });
}

void Communicator::deregister_memory(void* handle) {
  call("deregister memory", [&](const auto& nccl) { return nccl.remove(comm_, handle); });
}

void Communicator::begin_finish() {
  call("finish", [&](const auto& nccl) { return nccl.finalize(comm_); });
}

void Communicator::destroy() {
  call("finish", [&](const auto& nccl) { return nccl.destroy(std::exchange(comm_, nullptr)); });
}

bool Communicator::abort() noexcept {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock) return false;
  if (comm_ != nullptr) libraries_.nccl.abort(std::exchange(comm_, nullptr));
  return true;
}

void Communicator::abort_after_calls() noexcept {
  const std::lock_guard lock(calls_);
  if (comm_ != nullptr) libraries_.nccl.abort(std::exchange(comm_, nullptr));
}

void settle(Communicator& communicator, const std::function<void()>& meanwhile) {
  constexpr int kYields = 200;  // most launches take less than these
  for (int polls = 0; !communicator.settled(); ++polls) {
    meanwhile();
    if (polls < kYields) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

}  // namespace ddp::comm

// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL. Names, types and error codes match it.
#include <chrono>
#include <climits>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "tests/unit/comm/fake_gpu/machine.h"

namespace ddp::fake {

int allocate(Machine& machine, void** memory, std::size_t bytes, Owner owner);
int release(Machine& machine, void* memory, Owner owner);

namespace {

constexpr int kSuccess = 0;
constexpr int kUnhandledCudaError = 1;
constexpr int kInvalidArgument = 4;
constexpr int kInvalidUsage = 5;
constexpr int kInProgress = 7;
constexpr std::uintptr_t kPage = 4096;

// ncclConfig_t up to the fields that the fake reads.
struct Config {
  std::size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
};

thread_local int group_depth = 0;
thread_local std::vector<std::shared_ptr<Operation>> grouped;

// A call on a communicator: takes the lock, except while the call pretends to be long, and finds
// misuse.
class Call {
 public:
  Call(void* handle, const char* name, bool needs_idle = true)
      : machine_(Machine::get()), lock_(machine_.mutex) {
    for (const auto& known : machine_.communicators) {
      if (known.get() == handle) communicator_ = known.get();
    }
    if (communicator_ == nullptr) {
      refuse(std::string(name) + " on a communicator that does not exist", kInvalidArgument);
    } else if (communicator_->ended) {
      refuse(std::string(name) + " after the communicator was aborted or destroyed", kInvalidUsage);
    } else if (needs_idle && communicator_->polls_left > 0) {
      refuse(std::string(name) + " while the previous call is in progress", kInvalidArgument);
    }
    // An abort is short, because it may not wait for others.
    const bool is_short = std::string_view(name) == "ncclCommAbort";
    if (result != kSuccess || is_short) return;
    ++communicator_->threads_inside;
    sleep(std::chrono::milliseconds(machine_.knobs.call_milliseconds));
    const bool asks = std::string_view(name) == "ncclCommGetAsyncError";
    while (!asks && machine_.blocked.contains(communicator_->rank)) {
      sleep(std::chrono::milliseconds(1));
    }
    --communicator_->threads_inside;
    if (communicator_->ended) result = kInvalidUsage;
  }

  Machine& machine() { return machine_; }
  Communicator& communicator() { return *communicator_; }
  // The result of a call that is not done yet.
  int begin() {
    if (communicator_->blocking) {
      machine_.commit(*communicator_);
      machine_.advance();
      return kSuccess;
    }
    communicator_->polls_left = machine_.knobs.polls_in_progress;
    if (communicator_->polls_left > 0) return kInProgress;
    machine_.commit(*communicator_);
    machine_.advance();
    return kSuccess;
  }

  int result = kSuccess;

 private:
  // Without the lock.
  void sleep(std::chrono::milliseconds time) {
    if (time == std::chrono::milliseconds(0)) return;
    lock_.unlock();
    std::this_thread::sleep_for(time);
    lock_.lock();
  }

  void refuse(const std::string& problem, int code) {
    machine_.report(problem);
    result = code;
  }

  Machine& machine_;
  std::unique_lock<std::mutex> lock_;
  Communicator* communicator_ = nullptr;
};

int launch_group() {
  const auto operations = std::exchange(grouped, {});
  std::set<Communicator*> communicators;
  int result = kSuccess;
  for (const auto& operation : operations) communicators.insert(operation->communicator);
  for (Communicator* communicator : communicators) {
    Call call(communicator, "ncclGroupEnd");
    if (call.result != kSuccess) return call.result;
    for (const auto& operation : operations) {
      if (operation->communicator == communicator) communicator->pending.push_back(operation);
    }
    result = std::max(result, call.begin());
  }
  return result;
}

int add_operation(const char* name, void* handle, void* stream, Operation operation) {
  {
    Call call(handle, name);
    if (call.result != kSuccess) return call.result;
    if (call.communicator().error != 0) return call.communicator().error;
    operation.communicator = &call.communicator();
    operation.stream = &call.machine().stream_of(stream);
    operation.caller = call.machine().here();
    grouped.push_back(std::make_shared<Operation>(operation));
  }
  return group_depth > 0 ? kSuccess : launch_group();
}

}  // namespace
}  // namespace ddp::fake

using ddp::fake::Call;
using ddp::fake::Clique;
using ddp::fake::Communicator;
using ddp::fake::Kind;
using ddp::fake::Machine;
using ddp::fake::Operation;

namespace {

const std::byte* bytes_at(const void* memory) {
  return static_cast<const std::byte*>(memory);
}

std::byte* bytes_at(void* memory) {
  return static_cast<std::byte*>(memory);
}

int add_range(void* communicator, const char* name, void* memory, std::size_t bytes, bool window,
              void** handle) {
  Call call(communicator, name);
  if (call.result != 0) return call.result;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  if (call.machine().find(begin, bytes) == nullptr) {
    call.machine().report(std::string(name) + " of memory that is not allocated");
    return ddp::fake::kInvalidArgument;
  }
  if (window && begin % ddp::fake::kPage != 0) return ddp::fake::kInvalidArgument;
  if (window && !call.machine().knobs.windows) {
    *handle = nullptr;
    return 0;
  }
  auto& registrations = call.communicator().registrations;
  for (const auto& old : registrations) {
    if (begin < old.end && old.begin < begin + bytes) {
      call.machine().report("memory is registered twice");
    }
  }
  registrations.push_back({begin, begin + bytes, window});
  *handle = &registrations.back();
  return call.begin();
}

int remove_range(void* communicator, const char* name, void* handle) {
  Call call(communicator, name);
  if (call.result != 0) return call.result;
  auto& registrations = call.communicator().registrations;
  const auto before = registrations.size();
  registrations.remove_if([&](const auto& r) { return &r == handle; });
  return registrations.size() == before ? ddp::fake::kInvalidArgument : call.begin();
}

}  // namespace

extern "C" {

struct ncclUniqueId {
  char internal[128];
};

int ncclGetVersion(int* version) {
  *version = Machine::get().knobs.nccl_version;
  return 0;
}
const char* ncclGetErrorString(int code) {
  switch (code) {
    case 0:
      return "no error";
    case 1:
      return "unhandled cuda error";
    case 2:
      return "unhandled system error";
    case 4:
      return "invalid argument";
    case 5:
      return "invalid usage";
    case 6:
      return "remote process exited or there was a network error";
    case 7:
      return "NCCL operation in progress";
    default:
      return "fake trouble";
  }
}
const char* ncclGetLastError(void*) {
  return "fake: what NCCL says";
}
int ncclGetUniqueId(ncclUniqueId* id) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  const bool refused = static_cast<int>(machine.cliques.size()) >= machine.knobs.ids;
  if (refused && machine.knobs.id_error != 0) return machine.knobs.id_error;
  auto clique = std::make_unique<Clique>();
  clique->id = static_cast<int>(machine.cliques.size());
  std::memset(id->internal, 0, sizeof id->internal);
  std::memcpy(id->internal, &clique->id, sizeof clique->id);
  machine.cliques.push_back(std::move(clique));
  return 0;
}
int ncclCommInitRankConfig(void** handle, int ranks, ncclUniqueId id, int rank, void* settings) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  ddp::fake::Config config{};
  std::memcpy(&config, settings, sizeof config);
  if (config.magic != 0xcafebeef) return ddp::fake::kInvalidArgument;
  if (const auto error = machine.knobs.init_error.find(rank);
      error != machine.knobs.init_error.end()) {
    return error->second;
  }
  int number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  if (machine.knobs.others_elsewhere && machine.cliques.empty()) {
    machine.cliques.push_back(std::make_unique<Clique>());  // its ID is from another process
  }
  Clique& clique = *machine.cliques.at(static_cast<std::size_t>(number));
  clique.members.resize(static_cast<std::size_t>(ranks));
  auto communicator = std::make_unique<Communicator>();
  communicator->clique = &clique;
  communicator->rank = rank;
  communicator->device = ddp::fake::device_of_this_thread();
  communicator->blocking = config.blocking != 0;
  communicator->connecting = true;
  communicator->polls_left = 1;
  for (const Communicator* other : clique.members) {
    if (other != nullptr && other->device == communicator->device) {
      machine.report("two ranks of a communicator use one device");
      return ddp::fake::kInvalidUsage;
    }
  }
  clique.members.at(static_cast<std::size_t>(rank)) = communicator.get();
  ++clique.connected;
  *handle = communicator.get();
  machine.communicators.push_back(std::move(communicator));
  return ddp::fake::kInProgress;
}
// Its communicators are blocking, which no rank may use.
int ncclCommInitRank(void** /*handle*/, int /*ranks*/, ncclUniqueId /*id*/, int /*rank*/) {
  return ddp::fake::kInvalidUsage;
}
int ncclCommGetAsyncError(void* handle, int* error) {
  Call call(handle, "ncclCommGetAsyncError", false);
  if (call.result != 0) return call.result;
  Communicator& c = call.communicator();
  call.machine().advance();
  const int ranks = static_cast<int>(c.clique->members.size());
  if (c.connecting) {
    const bool all = (c.clique->connected == ranks || call.machine().knobs.others_elsewhere) &&
                     call.machine().knobs.init_never_completes == 0;
    c.connecting = !all;
    c.polls_left = all ? 0 : 1;
  } else if (c.finalizing) {
    c.finalized = c.clique->finalized == ranks || call.machine().knobs.others_elsewhere;
    c.polls_left = c.finalized ? 0 : 1;
  } else if (c.polls_left > 0 && --c.polls_left == 0) {
    call.machine().commit(c);
    call.machine().advance();
  }
  *error = c.error != 0 ? c.error : c.polls_left > 0 ? ddp::fake::kInProgress : 0;
  return 0;
}
int ncclCommFinalize(void* handle) {
  Call call(handle, "ncclCommFinalize");
  if (call.result != 0) return call.result;
  Communicator& c = call.communicator();
  if (!c.registrations.empty()) call.machine().report("memory is registered at the end");
  c.finalizing = true;
  c.polls_left = 1;
  ++c.clique->finalized;
  return ddp::fake::kInProgress;
}
int ncclCommDestroy(void* handle) {
  Call call(handle, "ncclCommDestroy");
  if (call.result != 0) return call.result;
  if (!call.communicator().finalized) call.machine().report("destroyed before it was finalized");
  call.communicator().ended = true;
  return 0;
}
int ncclCommAbort(void* handle) {
  Call call(handle, "ncclCommAbort", false);
  if (call.result != 0) return call.result;
  if (call.communicator().threads_inside > 0) {
    call.machine().report("ncclCommAbort while another thread is in a call");
  }
  call.machine().abort(call.communicator());
  call.machine().advance();
  return 0;
}

int ncclAllReduce(const void* from, void* to, std::size_t count, int type, int op,
                  void* communicator, void* stream) {
  return ddp::fake::add_operation("ncclAllReduce", communicator, stream,
                                  {.kind = Kind::all_reduce,
                                   .from = bytes_at(from),
                                   .to = bytes_at(to),
                                   .count = count,
                                   .type = type,
                                   .op = op});
}
int ncclReduceScatter(const void* from, void* to, std::size_t count, int type, int op,
                      void* communicator, void* stream) {
  return ddp::fake::add_operation("ncclReduceScatter", communicator, stream,
                                  {.kind = Kind::reduce_scatter,
                                   .from = bytes_at(from),
                                   .to = bytes_at(to),
                                   .count = count,
                                   .type = type,
                                   .op = op});
}
int ncclAllGather(const void* from, void* to, std::size_t count, int type, void* communicator,
                  void* stream) {
  return ddp::fake::add_operation("ncclAllGather", communicator, stream,
                                  {.kind = Kind::all_gather,
                                   .from = bytes_at(from),
                                   .to = bytes_at(to),
                                   .count = count,
                                   .type = type});
}
int ncclBroadcast(const void* from, void* to, std::size_t count, int type, int root,
                  void* communicator, void* stream) {
  return ddp::fake::add_operation("ncclBroadcast", communicator, stream,
                                  {.kind = Kind::broadcast,
                                   .from = bytes_at(from),
                                   .to = bytes_at(to),
                                   .count = count,
                                   .type = type,
                                   .peer = root});
}
int ncclSend(const void* from, std::size_t count, int type, int peer, void* communicator,
             void* stream) {
  return ddp::fake::add_operation(
      "ncclSend", communicator, stream,
      {.kind = Kind::send, .from = bytes_at(from), .count = count, .type = type, .peer = peer});
}
int ncclRecv(void* to, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return ddp::fake::add_operation(
      "ncclRecv", communicator, stream,
      {.kind = Kind::receive, .to = bytes_at(to), .count = count, .type = type, .peer = peer});
}
int ncclGroupStart() {
  ++ddp::fake::group_depth;
  return 0;
}
int ncclGroupEnd() {
  return --ddp::fake::group_depth > 0 ? 0 : ddp::fake::launch_group();
}

int ncclMemAlloc(void** memory, std::size_t bytes) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnhandledCudaError;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::allocate(machine, memory, bytes, ddp::fake::Owner::nccl) == 0
             ? 0
             : ddp::fake::kUnhandledCudaError;
}
int ncclMemFree(void* memory) {
  if (ddp::fake::refused_in_capture()) return ddp::fake::kUnhandledCudaError;
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return ddp::fake::release(machine, memory, ddp::fake::Owner::nccl) == 0
             ? 0
             : ddp::fake::kInvalidArgument;
}
int ncclCommRegister(void* communicator, void* memory, std::size_t bytes, void** handle) {
  return add_range(communicator, "ncclCommRegister", memory, bytes, false, handle);
}
int ncclCommDeregister(void* communicator, void* handle) {
  return remove_range(communicator, "ncclCommDeregister", handle);
}
int ncclCommWindowRegister(void* communicator, void* memory, std::size_t bytes, void** window,
                           int) {
  return add_range(communicator, "ncclCommWindowRegister", memory, bytes, true, window);
}
int ncclCommWindowDeregister(void* communicator, void* window) {
  return remove_range(communicator, "ncclCommWindowDeregister", window);
}

}  // extern "C"

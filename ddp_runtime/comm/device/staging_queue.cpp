// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/staging_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/peer_failure.h"
#include "ddp_runtime/comm/transport/thread_settings.h"

namespace ddp::comm {
namespace {

// After a failure, copies and transfers that take longer to end are left alone with their memory.
constexpr std::chrono::seconds kRestTime{5};
constexpr std::chrono::microseconds kPollInterval{50};

// Not a failure that this class reports; see StagingQueue::give_up.
class GaveUp : public RuntimeError {
 public:
  GaveUp() : RuntimeError("this rank gave up its group of GPUs after an error") {}
};

}  // namespace

struct StagingQueue::Shared {
  std::string what;
  std::optional<DeviceStream> stream;
  EventPool::Event after;  // the caller's work before the call; null without a stream
  bool is_message = false;
  bool only_reads = false;
  std::shared_ptr<const void> keep;
  std::shared_ptr<DeviceWork> work;
};

struct StagingQueue::UnderWay {
  enum class Phase { waiting, copying_out, traveling, copying_back };

  std::shared_ptr<Shared> call;
  Piece piece;
  bool is_first = false;
  bool is_last = false;
  std::uint64_t number = 0;
  Phase phase = Phase::waiting;
  PageLockedPool::Memory memory = {};
  EventPool::Event copied = {};  // null if there is nothing to copy from the GPU
  Work host = {};
  EventPool::Event end = {};
};

namespace {

// From the first byte of the copies to the last one.
std::pair<const std::byte*, const std::byte*> extent_of(
    const std::vector<StagingQueue::Copy>& copies) {
  const std::byte* first = copies.front().device;
  const std::byte* end = first;
  for (const auto& copy : copies) {
    first = std::min<const std::byte*>(first, copy.device, std::less<>());
    end = std::max<const std::byte*>(end, copy.device + copy.bytes, std::less<>());
  }
  return {first, end};
}

}  // namespace

// The pieces of one call do not read what the others write, also if its buffers overlap.
bool StagingQueue::writes_what_is_read(const UnderWay& earlier, const UnderWay& later) {
  if (earlier.call == later.call || earlier.piece.back.empty() || later.piece.out.empty()) {
    return false;
  }
  const auto [write_first, write_end] = extent_of(earlier.piece.back);
  const auto [read_first, read_end] = extent_of(later.piece.out);
  return std::less<>()(write_first, read_end) && std::less<>()(read_first, write_end);
}

StagingQueue::StagingQueue(std::shared_ptr<EventPool> events, FailureState& failures,
                           Settings settings)
    : events_(std::move(events)), failures_(failures), settings_(std::move(settings)) {
  const cuda::DeviceScope scope(events_->calls(), settings_.device);
  from_gpu_ = open_urgent_stream(events_->calls());
  to_gpu_ = open_urgent_stream(events_->calls());
  pool_ = std::make_shared<PageLockedPool>(events_->calls(), settings_.memory_bytes);
  thread_ = std::thread([this] { work_off(); });
}

StagingQueue::~StagingQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void StagingQueue::give_up() noexcept {
  given_up_ = true;
  wake_.notify_one();
}

// ---- the callers' side

Work StagingQueue::submit(Call call) {
  failures_.throw_if_failed();
  auto shared = std::make_shared<Shared>();
  shared->what = std::move(call.what);
  shared->stream = call.stream;
  if (call.stream) shared->after = events_->record(*call.stream);
  shared->is_message = call.is_message;
  shared->only_reads = call.only_reads;
  shared->keep = std::move(call.keep);
  shared->work = std::make_shared<DeviceWork>(
      events_, failures_, DeviceWork::Settings{call.stream.value_or(nullptr), call.blocks, {}});
  {
    const std::lock_guard lock(mutex_);
    if (over_) {
      throw_if_over();
      throw std::logic_error("the group of GPUs has ended");
    }
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      new_.push_back({.call = shared,
                      .piece = std::move(call.pieces[i]),
                      .is_first = i == 0,
                      .is_last = i + 1 == call.pieces.size()});
    }
  }
  wake_.notify_one();
  return Work::completed_by(shared->work);
}

void StagingQueue::fill_with_zeros(std::byte* memory, std::size_t bytes) {
  const auto& calls = events_->calls();
  {
    const cuda::DeviceScope scope(calls, settings_.device);
    check_device(calls, calls.set_bytes(memory, 0, bytes, to_gpu_.get()), "fill memory with zeros");
  }
  const auto end = events_->record(to_gpu_.get());
  while (!events_->reached(end)) std::this_thread::sleep_for(kPollInterval);
}

// ---- the thread

void StagingQueue::throw_if_over() const {
  failures_.throw_if_failed();
  if (given_up_) throw GaveUp();
}

void StagingQueue::work_off() noexcept {
  name_this_thread(settings_.name);
  sleep_precisely();
  const auto& calls = events_->calls();
  calls.set_device(settings_.device);
  // Other threads may call the device while this program records a graph.
  int mode = cuda::kCaptureModeThreadLocal;
  calls.exchange_capture_mode(&mode);
  try {
    WaitTimer timer(failures_, settings_.limits.timeout, settings_.limits.report_after);
    bool moved = true;
    while (take_new(moved)) {
      throw_if_over();
      moved = move_messages();
      moved |= move_collectives();
      watch_gpu(timer);
    }
  } catch (...) {
    fail_by_current_exception();
  }
  end_all();
}

// Waits for calls, or for a moment if the last poll moved nothing. Returns whether there is work
// left or to come.
bool StagingQueue::take_new(bool moved) {
  constexpr int kYields = 100;
  idle_polls_ = moved ? 0 : idle_polls_ + 1;
  const auto something = [this] { return stopping_ || given_up_ || !new_.empty(); };
  if (!moved && idle_polls_ < kYields) std::this_thread::yield();
  std::unique_lock lock(mutex_);
  if (collectives_.empty() && messages_.empty()) {
    wake_.wait(lock, something);
  } else if (idle_polls_ >= kYields && !stopping_) {
    wake_.wait_for(lock, kPollInterval, something);
  } else if (idle_polls_ >= kYields) {
    wake_.wait_for(lock, kPollInterval);
  }
  for (auto& piece : new_) {
    piece.number = next_number_++;
    (piece.call->is_message ? messages_ : collectives_).push_back(std::move(piece));
  }
  new_.clear();
  return !stopping_ || !collectives_.empty() || !messages_.empty();
}

// Copies begin, transfers begin, and copies back begin in the order of the calls.
bool StagingQueue::move_collectives() {
  using Phase = UnderWay::Phase;
  bool moved = false;
  bool may_travel = true;
  bool may_return = true;
  for (auto& piece : collectives_) {
    if (piece.phase == Phase::waiting) {
      if (!step(piece, &StagingQueue::copy_out)) break;
      moved = true;
    }
    if (piece.phase == Phase::copying_out && may_travel) {
      moved |= step(piece, &StagingQueue::transfer);
    }
    if (piece.phase == Phase::traveling && may_return) {
      moved |= step(piece, &StagingQueue::copy_back);
    }
    may_travel = may_travel && piece.phase > Phase::copying_out;
    may_return = may_return && piece.phase > Phase::traveling;
  }
  while (!collectives_.empty() && step(collectives_.front(), &StagingQueue::has_ended)) {
    collectives_.pop_front();
    moved = true;
  }
  return moved;
}

// Messages between different ranks do not wait for each other, but the transfers of each kind begin
// in the order of the calls.
bool StagingQueue::move_messages() {
  using Phase = UnderWay::Phase;
  bool moved = false;
  bool may_send = true;
  for (auto message = messages_.begin(); message != messages_.end();) {
    const bool sends = message->call->only_reads;
    if (message->phase == Phase::waiting) moved |= step(*message, &StagingQueue::copy_out);
    if (message->phase == Phase::copying_out && (may_send || !sends)) {
      moved |= step(*message, &StagingQueue::transfer);
    }
    if (message->phase == Phase::traveling) moved |= step(*message, &StagingQueue::copy_back);
    if (sends && message->phase == Phase::copying_out) may_send = false;
    if (step(*message, &StagingQueue::has_ended)) {
      message = messages_.erase(message);
      moved = true;
    } else {
      ++message;
    }
  }
  return moved;
}

bool StagingQueue::step(UnderWay& piece, bool (StagingQueue::*function)(UnderWay&)) {
  try {
    return (this->*function)(piece);
  } catch (const PeerFailure&) {
    throw;
  } catch (const BrokenCollective&) {
    throw;
  } catch (const RuntimeError& e) {
    throw RuntimeError(
        fmt::format("rank {} cannot send the data of {} from GPU {} ({}) through the host, because "
                    "this or other work of the program failed: {}",
                    settings_.rank, piece.call->what, settings_.device, settings_.gpu, e.what()));
  }
}

bool StagingQueue::copy_out(UnderWay& piece) {
  Shared& call = *piece.call;
  if (!may_read(piece)) return false;
  if (piece.piece.bytes > 0) {
    piece.memory = call.is_message ? pool_->take_beyond_limit(piece.piece.bytes)
                                   : pool_->take(piece.piece.bytes);
    if (!piece.memory) return false;
  }
  if (piece.is_first) call.work->began();
  wait_for_writers(piece);
  if (!piece.piece.out.empty() || call.only_reads) {
    enqueue(piece.piece.out, piece, false);
    piece.copied = events_->record(from_gpu_.get());
  }
  if (piece.is_last && call.only_reads) call.work->launched(piece.copied);
  piece.phase = UnderWay::Phase::copying_out;
  return true;
}

bool StagingQueue::transfer(UnderWay& piece) {
  if (piece.copied && !events_->reached(piece.copied)) return false;
  if (piece.piece.transfer) piece.host = piece.piece.transfer(piece.memory.get());
  piece.phase = UnderWay::Phase::traveling;
  return true;
}

bool StagingQueue::copy_back(UnderWay& piece) {
  if (!piece.host.done()) return false;
  piece.host.wait();  // throws its error
  Shared& call = *piece.call;
  if (!call.only_reads) {
    enqueue(piece.piece.back, piece, true);
    piece.end = events_->record(to_gpu_.get());
    if (piece.is_last) call.work->launched(piece.end);
  }
  piece.phase = UnderWay::Phase::copying_back;
  return true;
}

bool StagingQueue::has_ended(UnderWay& piece) {
  if (piece.phase != UnderWay::Phase::copying_back) return false;
  if (piece.end && !events_->reached(piece.end)) return false;
  piece.memory.reset();
  if (piece.is_last) {
    piece.call->keep.reset();
    piece.call->work->finished();
  }
  return true;
}

// Whether all earlier collectives that write what this piece reads are being copied back.
bool StagingQueue::may_read(const UnderWay& piece) const {
  if (piece.call->is_message) return true;
  for (const auto& earlier : collectives_) {
    if (&earlier == &piece) break;
    if (earlier.phase != UnderWay::Phase::copying_back && writes_what_is_read(earlier, piece)) {
      return false;
    }
  }
  return true;
}

void StagingQueue::wait_for_writers(const UnderWay& piece) const {
  if (piece.call->is_message) return;
  for (const auto& earlier : collectives_) {
    if (&earlier == &piece) break;
    if (earlier.end && writes_what_is_read(earlier, piece)) {
      events_->make_wait(from_gpu_.get(), earlier.end);
    }
  }
}

// Without copies, what is recorded next still follows what the caller did before the call.
void StagingQueue::enqueue(const std::vector<Copy>& copies, const UnderWay& piece,
                           bool to_device) const {
  const auto& calls = events_->calls();
  DeviceStream stream = (to_device ? to_gpu_ : from_gpu_).get();
  if (piece.call->after) events_->make_wait(stream, piece.call->after);  // not for a barrier
  for (const auto& copy : copies) {
    std::byte* const host = piece.memory.get() + copy.offset;
    check_device(calls,
                 calls.copy(to_device ? copy.device : host, to_device ? host : copy.device,
                            copy.bytes, cuda::kCopyDefault, stream),
                 to_device ? "copy data from the host (cudaMemcpyAsync)"
                           : "copy data to the host (cudaMemcpyAsync)");
  }
}

// ---- waits that take too long, and failures

const StagingQueue::UnderWay* StagingQueue::oldest_on_gpu() const {
  for (const auto* pieces : {&collectives_, &messages_}) {
    if (pieces->empty()) continue;
    const auto& oldest = pieces->front();
    const bool copies_out = oldest.phase == UnderWay::Phase::copying_out;
    if (copies_out || oldest.phase == UnderWay::Phase::copying_back) return &oldest;
  }
  return nullptr;
}

// The group of hosts watches transfers.
void StagingQueue::watch_gpu(WaitTimer& timer) {
  const UnderWay* const oldest = oldest_on_gpu();
  std::optional<std::uint64_t> at;
  if (oldest != nullptr) at = oldest->number * 4 + static_cast<std::uint64_t>(oldest->phase);
  if (at != watched_ || !at) {
    if (watched_) timer.moved();
    if (at) timer.begin();
    watched_ = at;
    return;
  }
  timer.check([&](std::chrono::milliseconds waited) {
    return fmt::format("rank {} has waited {:.1f} s for its GPU to copy the data of {}",
                       settings_.rank, std::chrono::duration<double>(waited).count(),
                       oldest->call->what);
  });
}

void StagingQueue::fail_by_current_exception() noexcept {
  try {
    throw;
  } catch (const PeerFailure&) {
    // known already
  } catch (const GaveUp&) {
    // reported by the caller
  } catch (const BrokenCollective& e) {
    failures_.fail({.rank = settings_.rank, .text = e.what(), .symptom = e.symptom()});
  } catch (const std::exception& e) {
    failures_.fail({settings_.rank, e.what()});
  } catch (...) {
    failures_.fail({settings_.rank, "unknown error in a collective of GPU memory"});
  }
}

bool StagingQueue::copies_have_ended(const UnderWay& piece) const noexcept {
  try {
    return (!piece.copied || events_->reached(piece.copied)) &&
           (!piece.end || events_->reached(piece.end));
  } catch (const RuntimeError&) {
    return true;  // the GPU is lost, and its copies with it
  }
}

// Transfers end only if a rank has failed.
void StagingQueue::let_end(const UnderWay& piece, Clock::time_point deadline) const noexcept {
  const auto ended = [&] {
    return copies_have_ended(piece) && (!failures_.failed() || piece.host.done());
  };
  while (!ended() && Clock::now() < deadline) std::this_thread::sleep_for(kPollInterval);
}

// Memory returns to the callers and to the pool only when nothing uses it. Without a failure, there
// is nothing left to end.
void StagingQueue::end_all() noexcept {
  std::exception_ptr cause;
  try {
    throw_if_over();
  } catch (...) {
    cause = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    for (auto& piece : new_) collectives_.push_back(std::move(piece));
    new_.clear();
  }
  collectives_.splice(collectives_.end(), messages_);
  const auto deadline = Clock::now() + kRestTime;
  for (auto& piece : collectives_) {
    let_end(piece, deadline);
    const bool ended = copies_have_ended(piece) && piece.host.done();
    if (piece.memory && !ended) pool_->abandon(piece.memory);
    piece.memory.reset();
  }
  for (auto& piece : collectives_) {
    if (piece.is_last) piece.call->work->failed(cause);
  }
  collectives_.clear();
}

}  // namespace ddp::comm

// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/device/launch_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/errors.h"
#include "ddp_runtime/comm/group/call_record.h"
#include "ddp_runtime/comm/transport/thread_settings.h"

namespace ddp::comm {
namespace {

std::string on_channel(const std::string& channel) {
  return channel == kMainChannel ? "" : fmt::format(" on channel {}", channel);
}

// The launches of all channels of a group are one sequence in the flight recorder, so the hang
// analysis finds ranks that launched them in different orders.
GroupName recorded_name(Group& host) {
  GroupName name = host.name().of_channel("GPU");
  if (name.of_some_ranks) host.flight_recorder().add_group(name.channel);
  return name;
}

// A launching thread that is in a call of NCCL for longer does not come back.
constexpr std::chrono::seconds kCallTime{5};

// Not a failure that this class reports; see LaunchQueue::give_up.
class GivenUp : public RuntimeError {
 public:
  GivenUp() : RuntimeError("this rank gave up its group of GPUs after an error") {}
};

std::string in_parentheses(const std::string& label) {
  return label.empty() ? "" : fmt::format(" ({})", label);
}

}  // namespace

LaunchQueue::LaunchQueue(StartedNccl started, Group& host, FailureState& failures,
                         const Settings& settings)
    : events_(std::move(started.events)),
      stream_(std::move(started.stream)),
      communicator_(std::move(started.communicator)),
      host_(host),
      failures_(failures),
      recorder_(host.flight_recorder()),
      settings_(settings),
      rank_(host.world_rank(host.rank())),
      name_(recorded_name(host)),
      order_(host.point_to_point_channel("order of launches"), log_, host),
      clock_(events_),
      launcher_([this] { launch_all(); }),
      watchdog_([this] { watch(); }) {}

LaunchQueue::~LaunchQueue() {
  if (!launcher_.joinable()) return;
  give_up();
  finish({});
}

void LaunchQueue::enter_thread(const char* name) const {
  name_this_thread(name);
  sleep_precisely();
  const auto& calls = events_->calls();
  calls.set_device(settings_.device);
  // Other threads may call the device while this program records a graph.
  int mode = cuda::kCaptureModeThreadLocal;
  calls.exchange_capture_mode(&mode);
}

// ---- requests

void LaunchQueue::require_open() const {
  if (!over_) return;
  throw_if_over();
  throw std::logic_error("the group of GPUs has ended");
}

void LaunchQueue::push(Launch launch) {
  queue_.push_back(std::move(launch));
  wake_launcher_.notify_one();
}

Work LaunchQueue::launch(Request request) {
  failures_.throw_if_failed();
  Launch launch;
  launch.channel = std::move(request.channel);
  launch.signature =
      fmt::format("{} of {}{}", request.name, request.signature, on_channel(launch.channel));
  launch.call = std::move(request.call);
  launch.keep.push_back(std::move(request.keep));
  if (request.after) launch.after.push_back(events_->record(*request.after));
  auto work = std::make_shared<DeviceWork>(
      events_, failures_,
      DeviceWork::Settings{request.after.value_or(nullptr), request.blocks, {}});
  launch.works.push_back(work);
  const std::lock_guard lock(mutex_);
  require_open();
  launch.number = next_number_++;
  launch.what = fmt::format("{} #{}{}{}", request.name, *launch.number,
                            in_parentheses(request.label), on_channel(launch.channel)) +
                name_.after;
  log_.add(launch.signature, launch.signature + in_parentheses(request.label));
  push(std::move(launch));
  return Work::completed_by(std::move(work));
}

Work LaunchQueue::message(const std::string& channel, const Communicator::Message& message,
                          const std::string& label, std::shared_ptr<const void> keep) {
  failures_.throw_if_failed();
  const auto start = [queue = weak_from_this()] {
    if (const auto alive = queue.lock()) alive->start_messages();
  };
  DeviceStream stream = message.data.stream;
  auto after = events_->record(stream);
  auto work =
      std::make_shared<DeviceWork>(events_, failures_, DeviceWork::Settings{stream, false, start});
  const std::lock_guard lock(mutex_);
  require_open();
  messages_.push_back(
      {message,
       fmt::format("{} rank {} of {}{}{}", message.outgoing ? "send to" : "receive from",
                   host_.world_rank(message.peer), describe(message.data), in_parentheses(label),
                   on_channel(channel)) +
           name_.after,
       std::move(after), work, std::move(keep)});
  return Work::completed_by(std::move(work));
}

void LaunchQueue::start_messages() {
  const std::lock_guard lock(mutex_);
  if (messages_.empty()) return;
  Launch launch;
  launch.channel = kMainChannel;
  std::vector<Communicator::Message> calls;
  for (auto& [message, what, after, work, keep] : messages_) {
    launch.what += (launch.what.empty() ? "" : ", ") + what;
    launch.after.push_back(std::move(after));
    launch.works.push_back(std::move(work));
    launch.keep.push_back(std::move(keep));
    calls.push_back(message);
  }
  launch.signature = "messages";
  launch.call = [calls = std::move(calls)](Communicator& communicator, DeviceStream stream) {
    communicator.exchange(calls, stream);
  };
  messages_.clear();
  push(std::move(launch));
}

void LaunchQueue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] {
    return over_ || (queue_.empty() && launching_.empty() && in_flight_.empty());
  });
  lock.unlock();
  throw_if_over();
}

// ---- the launching thread

void LaunchQueue::launch_all() {
  enter_thread("ddp-nccl");
  for (;;) {
    Launch next;
    {
      std::unique_lock lock(mutex_);
      wake_launcher_.wait(lock, [this] { return stopping_ || over_ || !queue_.empty(); });
      if (over_ || queue_.empty()) break;
      next = std::move(queue_.front());
      queue_.pop_front();
      launching_ = next.what;
    }
    start(next);
    if (!put_in_flight(next)) end_late(next);
    changed_.notify_all();
    wake_watchdog_.notify_one();
  }
}

// Returns false if the watchdog has ended all launches.
bool LaunchQueue::put_in_flight(Launch& launch) {
  const std::lock_guard lock(mutex_);
  launching_.clear();
  if (ended_) return false;
  in_flight_.push_back(std::move(launch));
  return true;
}

// A launch that fails is in flight as well: the watchdog ends it after the abort, because its
// kernel may run.
void LaunchQueue::start(Launch& launch) noexcept {
  try {
    throw_if_over();
    launch.record = recorder_.begin(launch.number, launch.what, launch.signature, name_.channel);
    try {
      for (const auto& event : launch.after) events_->make_wait(stream_.get(), event);
    } catch (const RuntimeError& e) {
      // NCCL's own call would report the same error as its own.
      throw RuntimeError(
          fmt::format("{} cannot start, because earlier work of this program failed on the GPU: {}",
                      launch.what, e.what()));
    }
    launch.call(*communicator_, stream_.get());
    settle(*communicator_, [this] { throw_if_over(); });
    launch.held = !launch.after.empty();
    recorder_.set_on_gpu(*launch.record, launch.held ? OnGpu::held : OnGpu::running);
    launch.end = events_->record(stream_.get());
    for (const auto& work : launch.works) work->launched(launch.end);
  } catch (...) {
    launch.error = std::current_exception();
    fail_by_current_exception();
  }
}

void LaunchQueue::fail_by_current_exception() noexcept {
  try {
    throw;
  } catch (const PeerFailure&) {
    // known already
  } catch (const GivenUp&) {
    // reported by the caller
  } catch (const BrokenCollective& e) {
    failures_.fail({.rank = rank_, .text = e.what(), .symptom = e.symptom()});
  } catch (const std::exception& e) {
    failures_.fail({rank_, e.what()});
  } catch (...) {
    failures_.fail({rank_, "unknown error in a collective on a GPU"});
  }
}

// `held`: the launch that the watchdog awaits.
void LaunchQueue::check(WaitTimer& timer, bool held) const {
  timer.check([&](std::chrono::milliseconds waited) {
    return held ? waiting("earlier work of this program to end, so that " + front_ + " can start",
                          waited)
                : waiting(front_, waited);
  });
}

std::string LaunchQueue::waiting(const std::string& what, std::chrono::milliseconds waited) const {
  return fmt::format("rank {} has waited {:.1f} s for {} on its GPU", rank_,
                     std::chrono::duration<double>(waited).count(), what);
}

// ---- the watchdog

void LaunchQueue::watch() noexcept {
  enter_thread("ddp-watch");
  try {
    WaitTimer timer(failures_, settings_.limits.timeout, settings_.limits.report_after);
    for (bool finished = false; !finished;) {
      look(timer);
      std::unique_lock lock(mutex_);
      finished = drained_ && in_flight_.empty() && order_.over();
      if (!finished) wake_watchdog_.wait_for(lock, settings_.watch_interval);
    }
    const std::lock_guard lock(mutex_);
    over_ = true;
  } catch (...) {
    fail_by_current_exception();
    end_all_by_abort();
  }
  changed_.notify_all();
}

void LaunchQueue::throw_if_over() const {
  failures_.throw_if_failed();
  if (given_up_) throw GivenUp();
}

void LaunchQueue::look(WaitTimer& timer) {
  throw_if_over();
  retire(timer);
  communicator_->throw_if_failed();
  bool drained = false;
  {
    const std::lock_guard lock(mutex_);
    drained = drained_;
  }
  if (!order_.over()) order_.step(drained);
}

// Launches end in order, because they are on one stream.
void LaunchQueue::retire(WaitTimer& timer) {
  for (;;) {
    Launch* first = nullptr;  // stays valid, because only this thread removes it
    {
      const std::lock_guard lock(mutex_);
      if (!in_flight_.empty()) first = &in_flight_.front();
      const std::string& front = first == nullptr ? launching_ : first->what;
      if (front.empty()) return timer.moved();
      if (front_ != front) {
        front_ = front;
        looked_ = {};
        timer.begin();
      }
    }
    if (first == nullptr) return check(timer, false);
    if (!first->end) return;  // it failed to start
    const auto now = Clock::now();
    if (!reached(first->end, *first)) {
      looked_ = now;
      note_start(*first);
      return check(timer, first->held);
    }
    Launch launch;
    {
      const std::lock_guard lock(mutex_);
      launch = std::move(in_flight_.front());
    }
    front_.clear();
    if (launch.record) recorder_.end(*launch.record, false);
    launch.keep.clear();
    launch.call = nullptr;
    end_works(launch, Clock::now());
    {
      const std::lock_guard lock(mutex_);
      in_flight_.pop_front();  // only now, because wait_until_idle() promises that nothing is held
    }
    changed_.notify_all();
  }
}

// The launches before it have ended, so only the work of the program can hold it.
void LaunchQueue::note_start(Launch& launch) {
  if (!launch.held) return;
  const bool may_start = std::all_of(launch.after.begin(), launch.after.end(),
                                     [&](const auto& event) { return reached(event, launch); });
  if (!may_start) return;
  launch.held = false;
  recorder_.set_on_gpu(*launch.record, OnGpu::running);
}

// A collective begins when the work before it and the launch before it are done.
void LaunchQueue::end_works(const Launch& launch, Clock::time_point now) {
  Clock::time_point started = last_end_;
  try {
    last_end_ = clock_.look(launch.end, looked_, now);
    for (const auto& event : launch.after) started = std::max(started, clock_.time_of(event));
  } catch (const RuntimeError&) {
    last_end_ = now;  // the GPU has failed since; the next look reports it
  }
  for (const auto& work : launch.works) work->finished(started, last_end_);
}

bool LaunchQueue::reached(const EventPool::Event& event, const Launch& launch) const {
  try {
    return events_->reached(event);
  } catch (const RuntimeError& e) {
    throw RuntimeError(fmt::format(
        "{} did not end, because it or other work of this program failed on the GPU: {}",
        launch.what, e.what()));
  }
}

// NCCL frees a communicator only when no thread is in a call on it, and its kernels may write until
// then, so works end, and their memory is released, only after the abort, unless a call hangs.
void LaunchQueue::end_all_by_abort() noexcept {
  std::unique_lock lock(mutex_);
  over_ = true;
  wake_launcher_.notify_all();
  changed_.wait_for(lock, kCallTime, [this] { return launching_.empty(); });
  ended_ = true;
  lock.unlock();
  communicator_->abort();
  const auto cause = reason_of_end();
  lock.lock();
  const auto queue = std::exchange(queue_, {});
  const auto in_flight = std::exchange(in_flight_, {});
  const auto messages = std::exchange(messages_, {});
  lock.unlock();
  for (const auto* launches : {&in_flight, &queue}) {
    for (const auto& launch : *launches) end_with(cause, launch);
  }
  for (const auto& message : messages) message.work->failed(cause);
}

// The call of this launch came back after the watchdog had ended all others, so that the
// communicator could not be aborted then.
void LaunchQueue::end_late(const Launch& launch) noexcept {
  communicator_->abort_after_calls();
  end_with(reason_of_end(), launch);
}

std::exception_ptr LaunchQueue::reason_of_end() const noexcept {
  try {
    throw_if_over();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void LaunchQueue::end_with(const std::exception_ptr& cause, const Launch& launch) {
  if (launch.record) recorder_.end(*launch.record, true);
  for (const auto& work : launch.works) work->failed(launch.error ? launch.error : cause);
}

// ---- the end

void LaunchQueue::finish(const std::function<void(Communicator&)>& release) noexcept {
  start_messages();
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_launcher_.notify_all();
  launcher_.join();
  try {
    // Has a time limit. The exchange of orders, which needs all ranks, does not.
    if (!given_up_) host_.barrier("end of the group of GPUs").wait();
  } catch (...) {
    fail_by_current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    drained_ = true;
  }
  wake_watchdog_.notify_all();
  watchdog_.join();
  try {
    if (!failures_.failed() && !given_up_) end_communicator(release);
  } catch (...) {
    fail_by_current_exception();
  }
  communicator_.reset();  // aborts, unless it was ended
}

// All launches are done. Memory is deregistered before the communicator ends.
void LaunchQueue::end_communicator(const std::function<void(Communicator&)>& release) {
  const cuda::DeviceScope scope(events_->calls(), settings_.device);
  WaitTimer timer(failures_, settings_.limits.timeout, settings_.limits.report_after);
  timer.begin();
  if (release) release(*communicator_);
  communicator_->begin_finish();
  settle(*communicator_,
         [&] { timer.check([&](auto waited) { return waiting("the end of the job", waited); }); });
  communicator_->destroy();
}

}  // namespace ddp::comm

#include "ddp_runtime/comm/patience.h"

#include "ddp_runtime/comm/errors.h"

namespace ddp::comm {

void Patience::begin(TimePoint now) {
  moved();
  clock_ = RunningClock(std::chrono::seconds(1), now);
  deadline_ = now + timeout_;
}

void Patience::moved() noexcept {
  waiting_ = false;
  if (stalled_) failures_.end_stall();
  stalled_ = false;
}

void Patience::check(const Complaint& complaint, TimePoint now) {
  failures_.throw_if_failed();
  const auto before = clock_.now();
  const auto counted = clock_.look(now);
  if (!waiting_) {
    // What went before was work: it does not count.
    waiting_ = true;
    deadline_ += counted - before;
    still_since_ = counted;
    next_suspicion_ = counted + suspicious_;
    return;
  }
  if (counted > deadline_) throw BrokenCollective(Symptom::long_wait, complaint(timeout_));
  if (counted <= next_suspicion_) return;
  next_suspicion_ = counted + suspicious_;
  if (!stalled_) failures_.begin_stall();
  stalled_ = true;
  failures_.suspect(
      complaint(std::chrono::duration_cast<std::chrono::milliseconds>(counted - still_since_)));
}

}  // namespace ddp::comm

// SPDX-License-Identifier: Apache-2.0
// The state of the fake: devices, streams, events, communicators. Every function of the fake takes
// the machine's lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/comm/fake_gpu/fake_gpu.h"
#include "tests/unit/comm/fake_gpu/timeline.h"

namespace ddp::fake {

struct Communicator;
struct Item;

// What an event stands for after it was recorded: the end of the work that was on the stream.
struct Position {
  bool reached = false;
  double milliseconds = 0;  // on the machine's clock, when it was reached
  Moment moment;
};

struct Event {
  bool timed = true;
  std::shared_ptr<Position> latest;
};

struct Stream {
  int device = 0;
  int timeline = 0;
  Moment moment;  // of the last item
  std::deque<std::shared_ptr<Item>> items;
  bool destroyed = false;
};

enum class Kind { all_reduce, reduce_scatter, all_gather, broadcast, send, receive };

// One call of a collective, or one message.
struct Operation {
  Kind kind = Kind::all_reduce;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  std::size_t count = 0;
  int type = 0;
  int op = 0;
  int peer = 0;  // or root
  Communicator* communicator = nullptr;
  Stream* stream = nullptr;
  Moment caller = {};
  std::uint64_t number = 0;  // of a collective of the communicator
  bool arrived = false;
  bool done = false;
};

// The head of a stream that is not done holds up all that is behind it.
struct Item {
  std::string name;
  std::vector<Range> touches;
  std::function<void()> run;          // a kernel or a copy
  int polls_left = 0;                 // for which it does not run
  std::shared_ptr<Position> records;  // an event
  std::shared_ptr<Position> awaits;
  std::vector<std::shared_ptr<Operation>> operations;  // one launch of NCCL
};

// Who allocated memory, and so must free it. Page-locked memory of the host belongs to no device.
enum class Owner { cuda, nccl, page_locked };
constexpr int kHost = -1;

struct Allocation {
  std::size_t bytes = 0;
  int device = 0;  // or kHost
  Owner owner = Owner::cuda;
  std::unique_ptr<std::byte[]> memory;
};

// All ranks that were connected with one id.
struct Clique {
  int id = 0;
  std::vector<Communicator*> members;  // by rank; nullptr before it connects and after it ends
  int connected = 0;
  int finalized = 0;
  struct Meeting {
    std::vector<std::shared_ptr<Operation>> by_rank;
    std::size_t arrived = 0;
  };
  std::map<std::uint64_t, Meeting> meetings;  // by number of the collective
  std::map<std::array<int, 2>, std::deque<std::shared_ptr<Operation>>> sends;     // from, to
  std::map<std::array<int, 2>, std::deque<std::shared_ptr<Operation>>> receives;  // from, to
};

struct Registration {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  bool window = false;
};

struct Communicator {
  Clique* clique = nullptr;
  int rank = 0;
  int device = 0;
  bool blocking = false;
  bool connecting = false;
  bool finalizing = false;
  bool finalized = false;
  bool ended = false;  // destroyed or aborted; the object stays, to find later uses
  int polls_left = 0;
  int error = 0;
  std::uint64_t next = 0;     // number of the next collective
  std::uint64_t settled = 0;  // collectives that are complete
  int threads_inside = 0;
  std::vector<std::shared_ptr<Operation>> pending;  // called, but not on a stream yet
  std::list<Registration> registrations;
};

class Machine {
 public:
  static Machine& get();
  // With the default knobs, for programs that only load the library.
  Machine() { reset({}); }

  void reset(const Knobs& knobs);
  // Advances all streams as far as possible, then looks for a deadlock.
  void advance();
  void break_device(int device, int code);
  // The time on the clock of the devices, which is not that of the host.
  double milliseconds() const;
  void report(const std::string& problem);

  // The timeline of the calling thread.
  Moment& here();
  int here_timeline();
  // The calling thread has found reached what comes up to `moment`.
  void found_reached(const Moment& moment);
  void access(const Range& range, bool writes, int timeline, const Moment& moment,
              const std::string& who);
  // The memory is used again on a stream, after its last owner has dropped it. Owners that are
  // references to one object tell each other, by their count, what they found reached, which the
  // fake cannot see; so this comes after everything that any thread found reached.
  void reuse(void* stream, const Range& range);
  // The memory is freed, and may be allocated again.
  void forget(std::uintptr_t begin, std::uintptr_t end) { accesses_.forget(begin, end); }
  // Puts an item on a stream, after what the calling thread knows.
  void append(Stream& stream, const std::shared_ptr<Item>& item, const Moment& caller);
  Stream& stream_of(void* handle);
  // Puts a kernel or a copy of the calling thread on a stream.
  void launch(void* stream, const std::shared_ptr<Item>& item, const std::vector<Range>& reads,
              const std::vector<Range>& writes);

  // Puts the pending launch of a communicator on its streams.
  void commit(Communicator& communicator);
  void abort(Communicator& communicator);
  // The allocation that contains the range, or nullptr.
  const Allocation* find(std::uintptr_t begin, std::size_t bytes) const;

  std::mutex mutex;
  Knobs knobs;
  double passed = 0;  // milliseconds of pass()
  std::vector<std::string> problems;
  std::map<std::uintptr_t, Allocation> allocations;
  std::map<void*, std::unique_ptr<Stream>> streams;  // by handle
  std::map<void*, std::unique_ptr<Event>> events;
  std::vector<std::unique_ptr<Stream>> defaults;  // by device
  // By device, what all threads of the program know. A thread that finds a stream empty shares
  // this, one that finds an event reached does not, because it may be a watchdog that tells no
  // other thread.
  std::vector<Moment> known;
  std::vector<std::size_t> used;  // bytes, by device
  std::size_t page_locked = 0;    // bytes
  std::set<int> held;
  std::set<int> blocked;      // ranks whose calls do not return
  std::map<int, int> broken;  // device: the error of all later calls
  std::vector<std::unique_ptr<Clique>> cliques;
  std::vector<std::unique_ptr<Communicator>> communicators;
  int aborts = 0;
  int new_timeline() { return ++timelines_; }
  std::vector<Stream*> streams_of(int device);

 private:
  bool advance(Stream& stream);
  bool advance(Item& item, Stream& stream);
  bool arrive(const std::shared_ptr<Operation>& operation);
  void meet(Clique& clique, std::uint64_t number);
  void exchange(Clique& clique, std::array<int, 2> pair);
  void complete(Clique::Meeting& meeting);
  bool registered_alike(Clique& clique, const Clique::Meeting& meeting);
  void find_deadlock();

  AccessLog accesses_;
  std::map<int, Moment> threads_;  // by timeline
  Moment reached_;                 // what any thread found reached
  int timelines_ = 0;
  std::vector<std::vector<Item*>> running_;  // the collectives that occupy a device, by device
  bool deadlock_reported_ = false;
};

int device_of_this_thread();
// Whether a call is forbidden because this thread captures, which invalidates the capture.
bool refused_in_capture();
std::string describe(const Operation& operation);
std::size_t size_of_type(int type);

}  // namespace ddp::fake

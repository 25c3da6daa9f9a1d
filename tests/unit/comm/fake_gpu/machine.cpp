// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/comm/fake_gpu/machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "tests/unit/comm/fake_gpu/reduce.h"

namespace ddp::fake {
namespace {

// Threads are numbered for ever, so that a thread of an earlier test is not mistaken for this one.
int number_of_this_thread() {
  static std::atomic<int> threads{0};
  thread_local const int number = -1 - threads++;
  return number;
}

bool is_message(Kind kind) {
  return kind == Kind::send || kind == Kind::receive;
}

std::size_t ranks_of(const Operation& operation) {
  return operation.communicator->clique->members.size();
}

std::size_t bytes_read(const Operation& o) {
  const std::size_t bytes = o.count * size_of_type(o.type);
  if (o.kind == Kind::receive) return 0;
  if (o.kind == Kind::broadcast && o.communicator->rank != o.peer) return 0;
  return o.kind == Kind::reduce_scatter ? bytes * ranks_of(o) : bytes;
}

std::size_t bytes_written(const Operation& o) {
  const std::size_t bytes = o.count * size_of_type(o.type);
  if (o.kind == Kind::send) return 0;
  return o.kind == Kind::all_gather ? bytes * ranks_of(o) : bytes;
}

}  // namespace

std::size_t size_of_type(int type) {
  constexpr std::array<std::size_t, 10> kSizes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kSizes.at(static_cast<std::size_t>(type));
}

std::string describe(const Operation& o) {
  constexpr std::array<const char*, 6> kNames = {"ncclAllReduce", "ncclReduceScatter",
                                                 "ncclAllGather", "ncclBroadcast",
                                                 "ncclSend",      "ncclRecv"};
  std::string text = kNames.at(static_cast<std::size_t>(o.kind));
  text += " of " + std::to_string(o.count) + " elements of type " + std::to_string(o.type);
  if (is_message(o.kind)) return text + " with rank " + std::to_string(o.peer);
  if (o.kind == Kind::broadcast) text += " from rank " + std::to_string(o.peer);
  return text + " (collective " + std::to_string(o.number) + " of communicator " +
         std::to_string(o.communicator->clique->id) + ")";
}

Machine& Machine::get() {
  static Machine machine;
  return machine;
}

void Machine::reset(const Knobs& wanted) {
  const std::lock_guard lock(mutex);
  knobs = wanted;
  problems.clear();
  accesses_ = {};
  threads_.clear();
  reached_.clear();
  streams.clear();
  events.clear();
  communicators.clear();
  cliques.clear();
  allocations.clear();
  held.clear();
  blocked.clear();
  broken.clear();
  aborts = 0;
  deadlock_reported_ = false;
  const auto devices = static_cast<std::size_t>(knobs.devices);
  used.assign(devices, 0);
  page_locked = 0;
  known.assign(devices, {});
  running_.assign(devices, {});
  defaults.clear();
  for (int device = 0; device < knobs.devices; ++device) {
    defaults.push_back(std::make_unique<Stream>(Stream{device, new_timeline(), {}, {}, false}));
  }
}

void Machine::report(const std::string& problem) {
  if (problems.size() < 100) problems.push_back(problem);
}

int Machine::here_timeline() {
  return number_of_this_thread();
}

Moment& Machine::here() {
  return threads_[number_of_this_thread()];
}

void Machine::found_reached(const Moment& moment) {
  join(here(), moment);
  join(reached_, moment);
}

void Machine::access(const Range& range, bool writes, int timeline, const Moment& moment,
                     const std::string& who) {
  const auto begin = reinterpret_cast<std::uintptr_t>(range.data);
  // Threads use host memory again without telling the fake.
  if (range.bytes == 0 || find(begin, range.bytes) == nullptr) return;
  const auto now = moment.find(timeline);
  const auto conflict = accesses_.add(
      {begin, begin + range.bytes, writes, timeline, now == moment.end() ? 0 : now->second, who},
      moment);
  if (!conflict) return;
  report(who + (writes ? " writes" : " reads") + " memory without waiting for " + conflict->who +
         ", which " + (conflict->writes ? "writes" : "reads") + " it");
}

const Allocation* Machine::find(std::uintptr_t begin, std::size_t bytes) const {
  auto after = allocations.upper_bound(begin);
  if (after == allocations.begin()) return nullptr;
  const auto& [base, allocation] = *--after;
  return begin + bytes <= base + allocation.bytes ? &allocation : nullptr;
}

void Machine::append(Stream& stream, const std::shared_ptr<Item>& item, const Moment& caller) {
  join(stream.moment, caller);
  join(stream.moment, known[static_cast<std::size_t>(stream.device)]);
  ++stream.moment[stream.timeline];
  stream.items.push_back(item);
}

void Machine::launch(void* stream, const std::shared_ptr<Item>& item,
                     const std::vector<Range>& reads, const std::vector<Range>& writes) {
  Stream& on = stream_of(stream);
  item->touches = reads;
  item->touches.insert(item->touches.end(), writes.begin(), writes.end());
  append(on, item, here());
  for (const auto& range : reads) access(range, false, on.timeline, on.moment, item->name);
  for (const auto& range : writes) access(range, true, on.timeline, on.moment, item->name);
  advance();
}

void Machine::reuse(void* stream, const Range& range) {
  const Stream& on = stream_of(stream);
  Moment moment = on.moment;
  join(moment, here());
  join(moment, reached_);
  access(range, true, on.timeline, moment, "the next owner of freed memory");
}

void Machine::commit(Communicator& communicator) {
  std::map<Stream*, std::shared_ptr<Item>> launches;
  for (auto& operation : communicator.pending) {
    if (!is_message(operation->kind)) operation->number = communicator.next++;
    auto& item = launches[operation->stream];
    if (!item) item = std::make_shared<Item>();
    item->name += (item->name.empty() ? "" : " and ") + describe(*operation);
    item->touches.push_back({operation->from, bytes_read(*operation)});
    item->touches.push_back({operation->to, bytes_written(*operation)});
    item->operations.push_back(operation);
  }
  communicator.pending.clear();
  for (auto& [stream, item] : launches) {
    append(*stream, item, item->operations.front()->caller);
    const std::string who = item->name + " on rank " + std::to_string(communicator.rank);
    for (const auto& o : item->operations) {
      for (const auto& [data, bytes] :
           {Range{o->from, bytes_read(*o)}, {o->to, bytes_written(*o)}}) {
        const auto* memory = find(reinterpret_cast<std::uintptr_t>(data), bytes);
        if (bytes > 0 && (memory == nullptr || memory->device != communicator.device)) {
          report(who + " uses memory that is not allocated on its device");
        }
      }
      access({o->from, bytes_read(*o)}, false, stream->timeline, stream->moment, who);
      access({o->to, bytes_written(*o)}, true, stream->timeline, stream->moment, who);
    }
  }
}

std::vector<Stream*> Machine::streams_of(int device) {
  std::vector<Stream*> found = {defaults[static_cast<std::size_t>(device)].get()};
  for (const auto& [handle, stream] : streams) {
    if (stream->device == device) found.push_back(stream.get());
  }
  return found;
}

void Machine::advance() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (int device = 0; device < knobs.devices; ++device) {
      if (held.contains(device)) continue;
      for (Stream* stream : streams_of(device)) {
        while (advance(*stream)) moved = true;
      }
    }
  }
  find_deadlock();
  std::erase_if(streams, [](const auto& entry) {
    return entry.second->destroyed && entry.second->items.empty();
  });
}

// The context of a real device is lost: what is on its streams never runs.
void Machine::break_device(int device, int code) {
  broken[device] = code;
  for (Stream* stream : streams_of(device)) {
    for (const auto& item : stream->items) {
      for (const auto& o : item->operations) o->done = true;
    }
    stream->items.clear();
  }
  running_[static_cast<std::size_t>(device)].clear();
}

double Machine::milliseconds() const {
  constexpr double kUnlikeTheHosts = 1e6;
  if (knobs.clock_stands) return kUnlikeTheHosts + passed;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return kUnlikeTheHosts + std::chrono::duration<double, std::milli>(now).count();
}

bool Machine::advance(Stream& stream) {
  if (stream.items.empty()) return false;
  const auto item = stream.items.front();
  if (!advance(*item, stream)) return false;
  stream.items.pop_front();
  return true;
}

bool Machine::advance(Item& item, Stream& stream) {
  if (item.polls_left > 0 && item.polls_left-- > 0) return false;
  if (item.run) item.run();
  if (item.records) {
    item.records->reached = true;
    item.records->milliseconds = milliseconds();
  }
  if (item.awaits) return item.awaits->reached;
  if (item.operations.empty()) return true;
  auto& running = running_[static_cast<std::size_t>(stream.device)];
  if (std::ranges::find(running, &item) == running.end()) {
    if (static_cast<int>(running.size()) >= knobs.collectives_at_once) return false;
    running.push_back(&item);
  }
  for (const auto& operation : item.operations) {
    if (!operation->arrived && !operation->done) arrive(operation);
  }
  for (const auto& operation : item.operations) {
    if (!operation->done) return false;
  }
  std::erase(running, &item);
  return true;
}

bool Machine::arrive(const std::shared_ptr<Operation>& operation) {
  operation->arrived = true;
  Communicator& communicator = *operation->communicator;
  Clique& clique = *communicator.clique;
  if (is_message(operation->kind)) {
    const bool sends = operation->kind == Kind::send;
    const std::array<int, 2> pair = sends ? std::array{communicator.rank, operation->peer}
                                          : std::array{operation->peer, communicator.rank};
    (sends ? clique.sends : clique.receives)[pair].push_back(operation);
    exchange(clique, pair);
    return operation->done;
  }
  auto& meeting = clique.meetings[operation->number];
  meeting.by_rank.resize(clique.members.size());
  if (knobs.others_elsewhere) {
    std::fill(meeting.by_rank.begin(), meeting.by_rank.end(), operation);
    meet(clique, operation->number);
    return operation->done;
  }
  meeting.by_rank[static_cast<std::size_t>(communicator.rank)] = operation;
  if (++meeting.arrived == clique.members.size()) meet(clique, operation->number);
  return operation->done;
}

void Machine::exchange(Clique& clique, std::array<int, 2> pair) {
  auto& sends = clique.sends[pair];
  auto& receives = clique.receives[pair];
  const auto left = [](const auto& o) { return o->done; };  // as in meet
  std::erase_if(sends, left);
  std::erase_if(receives, left);
  while (!sends.empty() && !receives.empty()) {
    const auto send = sends.front();
    const auto receive = receives.front();
    sends.pop_front();
    receives.pop_front();
    if (send->count != receive->count || send->type != receive->type) {
      report(describe(*send) + " meets " + describe(*receive));
      return;  // both hang
    }
    std::memcpy(receive->to, send->from, send->count * size_of_type(send->type));
    send->done = receive->done = true;
  }
}

void Machine::meet(Clique& clique, std::uint64_t number) {
  auto& meeting = clique.meetings[number];
  const Operation& first = *meeting.by_rank.front();
  for (const auto& o : meeting.by_rank) {
    if (o->done) return;  // its rank has left it, and its memory may be gone: the others hang
    if (o->kind == first.kind && o->count == first.count && o->type == first.type &&
        o->op == first.op && o->peer == first.peer) {
      continue;
    }
    report("rank 0 launched " + describe(first) + ", but rank " +
           std::to_string(o->communicator->rank) + " launched " + describe(*o));
    return;  // real ones hang, or exchange garbage
  }
  if (knobs.never_completes >= 0 && number >= static_cast<std::uint64_t>(knobs.never_completes)) {
    return;
  }
  if (!registered_alike(clique, meeting)) {
    report(describe(first) + " mixes memory in a window with other memory, or at other offsets");
  }
  complete(meeting);
  clique.meetings.erase(number);
}

// Symmetric memory must be at the same offset of the same window on all ranks.
bool Machine::registered_alike(Clique& clique, const Clique::Meeting& meeting) {
  std::set<std::pair<std::ptrdiff_t, std::uintptr_t>> places;
  for (const auto& o : meeting.by_rank) {
    const auto at = reinterpret_cast<std::uintptr_t>(o->to);
    std::pair<std::ptrdiff_t, std::uintptr_t> place{-1, 0};
    std::ptrdiff_t index = 0;
    const auto* member = clique.members[static_cast<std::size_t>(o->communicator->rank)];
    if (member == nullptr) return true;
    for (const auto& registration : member->registrations) {
      if (registration.window && registration.begin <= at && at < registration.end) {
        place = {index, at - registration.begin};
      }
      ++index;
    }
    places.insert(place);
  }
  return places.size() == 1;
}

void Machine::complete(Clique::Meeting& meeting) {
  const Operation& first = *meeting.by_rank.front();
  const std::size_t bytes = first.count * size_of_type(first.type);
  const std::size_t ranks = meeting.by_rank.size();
  std::vector<const std::byte*> inputs;
  for (const auto& o : meeting.by_rank) inputs.push_back(o->from);
  std::vector<std::byte> result;
  switch (first.kind) {
    case Kind::all_reduce:
      result = reduce(inputs, first.count, first.type, first.op);
      break;
    case Kind::reduce_scatter:
      result = reduce(inputs, first.count * ranks, first.type, first.op);
      break;
    case Kind::all_gather:
      for (const auto* input : inputs) result.insert(result.end(), input, input + bytes);
      break;
    default:
      result.assign(inputs[static_cast<std::size_t>(first.peer)],
                    inputs[static_cast<std::size_t>(first.peer)] + bytes);
  }
  if (knobs.corrupts && !result.empty()) result.front() ^= std::byte{4};
  for (const auto& o : meeting.by_rank) {
    const std::size_t skip = o->kind == Kind::reduce_scatter
                                 ? static_cast<std::size_t>(o->communicator->rank) * bytes
                                 : 0;
    std::copy_n(result.data() + skip, bytes_written(*o), o->to);
    o->done = true;
    auto& c = *o->communicator;
    ++c.settled;
    const auto error = knobs.async_error.find(c.rank);
    if (error != knobs.async_error.end() &&
        c.settled >= static_cast<std::uint64_t>(knobs.fail_after)) {
      c.error = error->second;
    }
  }
}

// Its kernels leave without a result.
void Machine::abort(Communicator& communicator) {
  for (Stream* stream : streams_of(communicator.device)) {
    for (auto& item : stream->items) {
      for (auto& o : item->operations) {
        if (o->communicator != &communicator) continue;
        o->done = true;
        if (bytes_written(*o) > 0 &&
            find(reinterpret_cast<std::uintptr_t>(o->to), bytes_written(*o)) != nullptr) {
          std::memset(o->to, 0xee, bytes_written(*o));
        }
      }
    }
  }
  communicator.clique->members[static_cast<std::size_t>(communicator.rank)] = nullptr;
  communicator.pending.clear();
  communicator.registrations.clear();
  communicator.polls_left = 0;
  communicator.ended = true;
  ++aborts;
}

// Device a waits for device b if the collective that occupies a is on a stream of b behind the one
// that occupies b. A circle of such waits never ends.
void Machine::find_deadlock() {
  if (deadlock_reported_ || knobs.collectives_at_once > 1) return;
  const auto same = [](const Operation& a, const Operation& b) {
    if (a.communicator->clique != b.communicator->clique || a.communicator == b.communicator) {
      return false;
    }
    if (is_message(a.kind) != is_message(b.kind)) return false;
    if (!is_message(a.kind)) return a.number == b.number;
    return a.kind != b.kind && a.peer == b.communicator->rank && b.peer == a.communicator->rank;
  };
  std::map<int, std::pair<int, std::string>> waits;  // device: other device, text
  for (int a = 0; a < knobs.devices; ++a) {
    if (running_[static_cast<std::size_t>(a)].empty()) continue;
    const Item* mine = running_[static_cast<std::size_t>(a)].front();
    for (int b = 0; b < knobs.devices; ++b) {
      if (a == b || running_[static_cast<std::size_t>(b)].empty()) continue;
      const Item* theirs = running_[static_cast<std::size_t>(b)].front();
      for (Stream* stream : streams_of(b)) {
        for (const auto& item : stream->items) {
          if (item.get() == theirs) continue;
          for (const auto& o : item->operations) {
            for (const auto& m : mine->operations) {
              if (m->done || !same(*m, *o)) continue;
              waits[a] = {b, "device " + std::to_string(b) + " runs " + theirs->name + " before " +
                                 item->name};
            }
          }
        }
      }
    }
  }
  for (const auto& [start, edge] : waits) {
    std::string text;
    int at = start;
    for (std::size_t steps = 0; steps <= waits.size() && waits.contains(at); ++steps) {
      text += (text.empty() ? "" : ", and ") + waits[at].second;
      at = waits[at].first;
      if (at != start) continue;
      report("deadlock: " + text);
      deadlock_reported_ = true;
      return;
    }
  }
}

// ---- for tests

void reset(const Knobs& knobs) {
  Machine::get().reset(knobs);
}

std::vector<std::string> problems() {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return machine.problems;
}

std::string leaks() {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  std::string text;
  const auto count = [&](std::size_t n, const char* what) {
    if (n > 0) text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + what;
  };
  count(machine.streams.size(), "streams");
  count(machine.events.size(), "events");
  count(machine.allocations.size(), "allocations");
  std::size_t open = 0;
  for (const auto& communicator : machine.communicators) open += communicator->ended ? 0 : 1;
  count(open, "communicators");
  return text;
}

int aborts() {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return machine.aborts;
}

int threads_in_calls() {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  int threads = 0;
  for (const auto& communicator : machine.communicators) threads += communicator->threads_inside;
  return threads;
}

void block_calls(int rank) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.blocked.insert(rank);
}

void unblock_calls() {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.blocked.clear();
}

void hold(int device) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.held.insert(device);
}

void release(int device) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.held.erase(device);
  machine.advance();
}

void pass(double milliseconds) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.advance();
  machine.passed += milliseconds;
}

void break_device(int device, int code) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.break_device(device, code);
}

void launch(void* stream, const std::string& name, const std::vector<Range>& reads,
            const std::vector<Range>& writes, const std::function<void()>& run) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  auto item = std::make_shared<Item>();
  item->name = name;
  item->run = run;
  machine.launch(stream, item, reads, writes);
}

std::size_t page_locked_bytes() {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  return machine.page_locked;
}

void reuse(void* stream, Range range) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  machine.reuse(stream, range);
  machine.advance();
}

void touch(const std::string& who, Range range, bool writes) {
  auto& machine = Machine::get();
  const std::lock_guard lock(machine.mutex);
  ++machine.here()[machine.here_timeline()];
  machine.access(range, writes, machine.here_timeline(), machine.here(), who);
}

}  // namespace ddp::fake

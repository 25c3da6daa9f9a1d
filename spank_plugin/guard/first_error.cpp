// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/guard/first_error.h"

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"

namespace ddp::guard {
namespace {

constexpr std::size_t kMaxErrorText = 200;
constexpr std::size_t kMaxFileName = 80;
constexpr std::size_t kMaxPrefixes = 3;
constexpr std::size_t kMaxStreams = 8192;  // more prefixes than a job has ranks are none
// Foreign lines within a traceback, from another thread or process, before it counts as cut off.
constexpr int kMaxForeignLines = 8;
// Other lines after an error, before it counts as one that the program has handled.
constexpr int kMaxLinesAfter = 100;

// How much a piece of evidence proves. Better evidence wins whatever its cause is.
enum class Proof {
  sure,       // what ends a process: a traceback, an uncaught C++ exception, a kernel's message
  likely,     // a line that may also report a handled error
  exit_code,  // torchrun's word, which says how but not why
  cascade,
  shell,  // a complaint that many healthy jobs print, too
  last,   // how a process ends as a consequence: counts only if nothing else is there
};

struct Evidence {
  Proof proof;
  Cause cause;
  auto operator<=>(const Evidence&) const = default;  // NOLINT(modernize-use-nullptr)
};

enum class Where { anywhere, at_end, whole_line };

struct ErrorPatterns {
  Evidence evidence;
  std::array<std::string_view, 10> texts;
  Where where = Where::anywhere;
};

// The first one that matches a line applies.
constexpr auto kErrorPatterns = std::to_array<ErrorPatterns>({
    // An abort is the usual end after std::terminate and NCCL's watchdog, which give the reason.
    {{Proof::last, Cause::crash}, {"Fatal Python error: Aborted"}},
    // An assertion of a CUDA kernel also contains what an assertion of a program does.
    {{Proof::sure, Cause::device_error}, {"], thread: ["}},
    {{Proof::sure, Cause::host_memory},
     {"Out of memory: Killed process", "Memory cgroup out of memory", "oom-kill", "oom_kill event",
      ": Out Of Memory"}},
    {{Proof::likely, Cause::host_memory},
     {"std::bad_alloc", "Cannot allocate memory", "DefaultCPUAllocator: ", "out of shared memory"}},
    {{Proof::sure, Cause::gpu_fault}, {"Xid (PCI:", "fallen off the bus"}},
    {{Proof::likely, Cause::gpu_fault}, {"uncorrectable ECC error", "uncorrectable NVLink error"}},
    {{Proof::likely, Cause::gpu_memory},
     {"CUDA out of memory", "HIP out of memory", "CUDA error: out of memory", "'out of memory'",
      "CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED", "RESOURCE_EXHAUSTED"}},
    {{Proof::sure, Cause::own_error},
     {"Assertion `", "uncaught exception of type ", "Fortran runtime error: ", "ERROR: LoadError: ",
      "panicked at ", "Exception in thread \"main\"", "] Check failed: "}},
    {{Proof::likely, Cause::own_error},
     {"Address already in use", "Error while creating shared memory segment",
      "terminate called without an active exception", "ERROR STOP ", ": unbound variable",
      "has detected the following error"}},
    {{Proof::shell, Cause::own_error},
     {"command not found", "No such file or directory", "Permission denied"},
     Where::at_end},
    {{Proof::last, Cause::own_error}, {"MPI_ABORT was invoked", " Killed  "}},
    {{Proof::last, Cause::own_error}, {"Killed"}, Where::whole_line},
    {{Proof::sure, Cause::crash},
     {"Fatal Python error: ", "egmentation fault", "Bus error", "Illegal instruction",
      "Floating point exception", "ERROR: AddressSanitizer: "}},
    {{Proof::sure, Cause::crash},
     {"stack smashing detected", "double free or corruption", "free(): invalid",
      "malloc(): ", "munmap_chunk(): ", "corrupted size vs. prev_size"}},
    {{Proof::last, Cause::crash}, {"Aborted (core", " Aborted  "}},
    {{Proof::last, Cause::crash}, {"Aborted"}, Where::whole_line},
    {{Proof::likely, Cause::device_error},
     {"CUDA error: ", "HIP error: ", "device-side assert", "illegal memory access",
      "CUDA_ERROR_ILLEGAL_ADDRESS", "_STATUS_EXECUTION_FAILED", "unhandled cuda error"}},
    {{Proof::sure, Cause::library_timeout}, {"Watchdog caught collective operation timeout"}},
    {{Proof::likely, Cause::library_timeout},
     {"failed to pass monitoredBarrier", "Timed out waiting ", "Socket Timeout",
      "DEADLINE_EXCEEDED"}},
    {{Proof::cascade, Cause::cascade},
     {"Connection closed by peer", "Connection reset by peer", "Broken pipe",
      "ailed to recv, got 0 bytes", "recvValue failed", "sendBytes failed", "DistNetworkError",
      "PeerFailure"}},
    {{Proof::cascade, Cause::cascade},
     {"NCCL error", "NCCL communicator was aborted", "ncclRemoteError", "ncclSystemError",
      "socketPollConnect", "Some NCCL operations have failed or timed out", "another task died"}},
    {{Proof::cascade, Cause::cascade}, {"exited unexpectedly: ", " been silent for "}},
});

struct ErrorClass {
  std::string_view name;
  Evidence evidence;
};

constexpr auto kErrorClasses = std::to_array<ErrorClass>({
    {"MemoryError", {Proof::sure, Cause::host_memory}},
    {"_ArrayMemoryError", {Proof::sure, Cause::host_memory}},
    {"OutOfMemoryError", {Proof::sure, Cause::gpu_memory}},
    // These wrap an exception, which has a traceback of its own.
    {"ProcessRaisedException", {Proof::likely, Cause::own_error}},
    {"KeyboardInterrupt", {Proof::last, Cause::own_error}},
    {"SystemExit", {Proof::last, Cause::own_error}},
    {"DistStoreError", {Proof::sure, Cause::library_timeout}},
    {"BrokenPipeError", {Proof::cascade, Cause::cascade}},
    {"ConnectionResetError", {Proof::cascade, Cause::cascade}},
    {"SignalException", {Proof::cascade, Cause::cascade}},
    // torchrun's; its table of failures, which follows, knows more.
    {"ChildFailedError", {Proof::last, Cause::cascade}},
});

struct FatalSignal {
  std::uint32_t number;
  std::string_view name;
  Evidence evidence;
};

constexpr auto kFatalSignals = std::to_array<FatalSignal>({
    {4, "SIGILL", {Proof::exit_code, Cause::crash}},
    {6, "SIGABRT", {Proof::last, Cause::crash}},
    {7, "SIGBUS", {Proof::exit_code, Cause::crash}},
    {8, "SIGFPE", {Proof::exit_code, Cause::crash}},
    {9, "SIGKILL", {Proof::exit_code, Cause::own_error}},
    {11, "SIGSEGV", {Proof::exit_code, Cause::crash}},
    {15, "SIGTERM", {Proof::cascade, Cause::cascade}},
});

constexpr auto kLibraryPaths = std::to_array<std::string_view>(
    {"site-packages/", "dist-packages/", "/usr/lib/python", "/lib/python3", "<frozen "});
constexpr auto kHarmlessLevels =
    std::to_array<std::string_view>({"DEBUG", "INFO", "NOTE", "WARN", "WARNING"});
constexpr auto kErrorWords = std::to_array<std::string_view>(
    {"rror", "ERROR", "ail", "annot", "an't", "nable", "nvalid", "nknown", "fatal", "FATAL",
     "issing", "xpected", "refused", "not ", "must ", "required"});
// Python prints these above a traceback that ends nothing.
constexpr auto kIgnoredHeaders =
    std::to_array<std::string_view>({"Exception ignored ", "--- Logging error ---"});
constexpr auto kChainMarkers =
    std::to_array<std::string_view>({"During handling of the above exception, another",
                                     "The above exception was the direct cause of"});

template <std::size_t N>
bool has_any(std::string_view text, const std::array<std::string_view, N>& parts) noexcept {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

template <std::size_t N>
bool is_any(std::string_view text, const std::array<std::string_view, N>& words) noexcept {
  return std::find(words.begin(), words.end(), text) != words.end();
}

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}

std::size_t digits_at(std::string_view text, std::size_t at) noexcept {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return end - at;
}

std::size_t indent_of(std::string_view line) noexcept {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Removes colors and other control sequences. A carriage return ends a line, because a progress bar
// starts again there.
std::string plain_text(std::string_view tail) {
  std::string text;
  text.reserve(tail.size());
  for (std::size_t i = 0; i < tail.size(); ++i) {
    if (tail.substr(i, 2) == "\x1b[") {
      for (i += 2; i < tail.size() && tail[i] >= ' ' && tail[i] <= '?'; ++i) {
      }
    } else {
      text += tail[i] == '\r' ? '\n' : tail[i];
    }
  }
  return text;
}

// The size of one prefix that names a process: "[rank3]: ", "[default0]:" (torchrun --tee) or "3: "
// (srun -l). 0 if there is none.
std::size_t prefix_size(std::string_view line) noexcept {
  const bool in_brackets = line.starts_with('[');
  std::size_t at = in_brackets ? 1 : indent_of(line);
  while (in_brackets && at < line.size() && is_alphanumeric(line[at]) && !is_digit(line[at])) ++at;
  const std::size_t digits = digits_at(line, at);
  if (digits == 0) return 0;
  const std::string_view end = in_brackets ? "]:" : ": ";
  at += digits;
  if (!line.substr(at).starts_with(end)) return 0;
  at += end.size();
  return in_brackets && line.substr(at).starts_with(' ') ? at + 1 : at;
}

struct ErrorMatch {
  Evidence evidence;
  std::size_t at;
};

std::optional<ErrorMatch> match_in(std::string_view line) noexcept {
  for (const auto& patterns : kErrorPatterns) {
    for (const std::string_view text : patterns.texts) {
      if (text.empty()) break;
      const std::size_t at = patterns.where == Where::anywhere ? line.find(text)
                             : line.ends_with(text)            ? line.size() - text.size()
                                                               : std::string_view::npos;
      if (at == std::string_view::npos || (patterns.where == Where::whole_line && at > 0)) continue;
      return ErrorMatch{patterns.evidence, at};
    }
  }
  return std::nullopt;
}

// The class at the beginning of "package.BadSample: message" or "BadSample"; else empty.
std::string_view class_in(std::string_view line) noexcept {
  std::size_t end = 0;
  const auto is_part = [](char c) {
    return is_alphanumeric(c) || c == '_' || c == '.' || c == '<' || c == '>';
  };
  while (end < line.size() && is_part(line[end])) ++end;
  const std::string_view rest = line.substr(end);
  return rest.empty() || rest == ":" || rest.starts_with(": ") ? line.substr(0, end)
                                                               : std::string_view();
}

std::string_view last_part(std::string_view path, char separator) noexcept {
  const std::size_t at = path.rfind(separator);
  return at == std::string_view::npos ? path : path.substr(at + 1);
}

bool starts_upper(std::string_view name) noexcept {
  return !name.empty() && ((name[0] >= 'A' && name[0] <= 'Z') || name[0] == '_');
}

const ErrorClass* known_class(std::string_view name) noexcept {
  const auto found =
      std::find_if(kErrorClasses.begin(), kErrorClasses.end(),
                   [&](const ErrorClass& known) { return known.name == last_part(name, '.'); });
  return found == kErrorClasses.end() ? nullptr : &*found;
}

// Whether a name after a traceback is that of an exception: neither a log level nor a variable.
bool is_exception(std::string_view name) noexcept {
  const bool has_lower =
      std::any_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  return has_lower &&
         (starts_upper(name) || (!is_digit(name[0]) && name.find('.') != std::string_view::npos));
}

// Stricter, for a line without a traceback. A warning is not an error.
bool is_bare_exception(std::string_view name) noexcept {
  const std::string_view last = last_part(name, '.');
  const auto extends = [&](std::string_view suffix) {
    return last.size() > suffix.size() && last.ends_with(suffix);
  };
  return starts_upper(last) && (extends("Error") || extends("Exception") || known_class(name));
}

Evidence judge_exception(std::string_view name, std::string_view line) noexcept {
  const ErrorClass* known = known_class(name);
  Evidence evidence = known ? known->evidence : Evidence{Proof::sure, Cause::own_error};
  if (evidence.proof == Proof::last) return evidence;
  if (const auto match = match_in(line)) {
    const Cause cause = match->evidence.cause;
    evidence = {cause == Cause::cascade ? Proof::cascade : Proof::sure, cause};
  }
  // torch's wrapper around the exception of a data loader's worker, whose traceback follows.
  if (line.substr(name.size()).starts_with(": Caught ")) {
    evidence.proof = std::max(evidence.proof, Proof::likely);
  }
  return evidence;
}

struct CodePlace {
  std::string_view path;
  std::string_view line;
  std::string text() const {
    if (path.empty()) return "";
    return sanitize(last_part(path, '/').substr(0, kMaxFileName)) + ":" + std::string(line);
  }
};

// Reads `File "/home/u/train.py", line 88, in step`.
std::optional<CodePlace> place_in(std::string_view line) noexcept {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  line.remove_prefix(indent_of(line));
  if (!line.starts_with(kFile)) return std::nullopt;
  const std::size_t end = line.find(kLine);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view number = line.substr(end + kLine.size());
  if (digits_at(number, 0) == 0) return std::nullopt;
  return CodePlace{line.substr(kFile.size(), end - kFile.size()),
                   number.substr(0, std::min<std::size_t>(digits_at(number, 0), 9))};
}

// The lines of one process, as far as prefixes tell the processes apart.
struct ErrorStream {
  enum class In { log, traceback, dump, other_dump } in = In::log;
  std::optional<std::uint32_t> rank;
  std::size_t indent = 0;                  // of the traceback
  bool has_header = false;                 // else the tail starts within the traceback
  int foreign_lines = 0;                   // within the traceback
  CodePlace own, innermost;                // of the traceback or dump
  bool is_ignored = false;                 // the traceback ends nothing
  bool is_chained = false;                 // the next traceback follows from the previous one
  bool was_evidence = false;               // the previous exception
  bool is_consequence = false;             // the traceback follows from one in the tail
  bool is_other_failure = false;           // in torchrun's table, before the root cause
  bool is_root_cause = false;              // in torchrun's table
  std::string_view previous;               // the line above
  std::string_view fatal;                  // "Fatal Python error: ..."
  std::optional<std::string_view> thrown;  // the type of an uncaught C++ exception

  const CodePlace& place() const noexcept { return own.path.empty() ? innermost : own; }
};

// What ends the process that prints it, unless the process handles it.
bool is_final(const Evidence& evidence) noexcept {
  return evidence.proof == Proof::sure && evidence.cause < Cause::library_timeout;
}

// A summary, after the error itself.
bool is_of_launcher(std::string_view line) noexcept {
  return line.starts_with("srun: ") || line.starts_with("slurmstepd: ") ||
         line.starts_with("mpirun ");
}

class ErrorFinder {
 public:
  explicit ErrorFinder(ErrorOrder order) : order_(order) {}

  void read(std::string_view line) {
    std::size_t size = 0;
    std::optional<std::uint32_t> rank;
    for (std::size_t i = 0; i < kMaxPrefixes; ++i) {
      const std::string_view rest = line.substr(size);
      const std::size_t more = prefix_size(rest);
      if (more == 0) break;
      if (rest.starts_with("[rank")) rank = parse_decimal(rest.substr(5, rest.find(']') - 5));
      size += more;
    }
    const std::string_view prefix = trimmed(line.substr(0, size));
    const bool has_room = streams_.size() < kMaxStreams || streams_.contains(prefix);
    ErrorStream& stream = streams_[has_room ? prefix : std::string_view()];
    stream.rank = rank;
    line.remove_prefix(size);
    if (trimmed(line).empty()) return;
    if (!is_of_launcher(line)) last_line_ = line;
    read_line(stream, line);
    stream.previous = line;
  }

  FirstError take() {
    for (auto& [prefix, stream] : streams_) finish(stream, "");
    if (best_ && order_ == ErrorOrder::last && lines_after_ >= kMaxLinesAfter) forget();
    if (!best_) read_last_line();
    if (!first_.rank) first_.rank = root_rank_;
    if (first_.cause == Cause::none) first_.rank.reset();
    return std::move(first_);
  }

 private:
  void add(const ErrorStream& stream, Evidence evidence, std::string_view text,
           const CodePlace& place = {}) {
    // The line that reports these has no place; what follows from it has.
    const bool lacks_place =
        evidence.cause == Cause::crash || evidence.cause == Cause::device_error;
    if (best_ == evidence && lacks_place && source_ == &stream && first_.place.empty()) {
      first_.place = place.text();
    }
    if (best_ && !is_better(evidence)) return;
    best_ = evidence;
    lines_after_ = 0;
    source_ = &stream;
    constexpr std::size_t kShown = kMaxErrorText - 3;
    first_ = {evidence.cause, sanitize_beginning(trimmed(text), kShown), place.text(), {}};
    // A rank that reports a timeout or a lost connection is not the one that failed.
    if (evidence.cause < Cause::library_timeout) first_.rank = stream.rank;
  }

  bool is_better(const Evidence& evidence) const noexcept {
    if (order_ == ErrorOrder::last && is_final(*best_) && is_final(evidence)) return true;
    Evidence best = *best_;
    if (lines_after_ >= kMaxLinesAfter) best.proof = std::max(best.proof, Proof::likely);
    return evidence < best;
  }

  void forget() {
    best_.reset();
    first_ = {};
  }

  void read_line(ErrorStream& stream, std::string_view line) {
    constexpr auto npos = std::string_view::npos;
    if (finish(stream, line)) return;
    if (line.find("Traceback (most recent call last):") != npos) {
      begin_traceback(stream, indent_of(line));
    } else if (line.find("(most recent call first):") != npos) {
      begin_dump(stream, line);
    } else if (const auto place = place_in(line)) {
      read_place(stream, *place, indent_of(line));
    } else if (has_any(line, kChainMarkers)) {
      stream.is_chained = true;
    } else if (stream.in != ErrorStream::In::traceback || !read_in_traceback(stream, line)) {
      read_log(stream, line);
    }
  }

  // Ends what waits for the next line. Returns whether that line belongs to it.
  bool finish(ErrorStream& stream, std::string_view line) {
    if (stream.in >= ErrorStream::In::dump && !place_in(line)) {
      if (stream.in == ErrorStream::In::dump && !stream.fatal.empty()) {
        add(stream, match_in(stream.fatal)->evidence, stream.fatal, stream.place());
      }
      stream.in = ErrorStream::In::log;
    }
    if (!stream.thrown) return false;
    // Another thread may fail at the same time.
    if (trimmed(line) == "terminate called recursively") return true;
    constexpr std::string_view kWhat = "what():";
    const bool has_what = trimmed(line).starts_with(kWhat);
    std::string text(*std::exchange(stream.thrown, std::nullopt));
    const std::string type = text;
    if (has_what) text.append(": ").append(trimmed(trimmed(line).substr(kWhat.size())));
    add(stream, judge_exception(type, text), text);
    return has_what;
  }

  static void begin(ErrorStream& stream, ErrorStream::In in) {
    stream.in = in;
    stream.own = stream.innermost = {};
    stream.foreign_lines = 0;
  }

  static void begin_traceback(ErrorStream& stream, std::size_t indent, bool has_header = true) {
    begin(stream, ErrorStream::In::traceback);
    stream.indent = indent;
    stream.has_header = has_header;
    const bool is_chained = std::exchange(stream.is_chained, false);
    stream.is_ignored = is_chained ? stream.is_ignored : has_any(stream.previous, kIgnoredHeaders);
    stream.is_consequence = is_chained && stream.was_evidence;
  }

  // A dump by Python's faulthandler. Only the thread that crashed is of interest.
  static void begin_dump(ErrorStream& stream, std::string_view line) {
    const bool is_current = line.starts_with("Current thread");
    begin(stream, is_current ? ErrorStream::In::dump : ErrorStream::In::other_dump);
  }

  static void read_place(ErrorStream& stream, const CodePlace& place, std::size_t indent) {
    if (stream.in == ErrorStream::In::log)
      begin_traceback(stream, indent < 2 ? 0 : indent - 2, false);
    // A dump starts with the innermost call, a traceback ends with it.
    const bool is_dump = stream.in != ErrorStream::In::traceback;
    if (!is_dump || stream.innermost.path.empty()) stream.innermost = place;
    if (has_any(place.path, kLibraryPaths)) return;
    if (!is_dump || stream.own.path.empty()) stream.own = place;
  }

  // Returns whether the line belongs to the traceback.
  bool read_in_traceback(ErrorStream& stream, std::string_view line) {
    const std::size_t indent = indent_of(line);
    if (indent > stream.indent) return true;
    const std::string_view text = trimmed(line);
    const std::string_view name = class_in(text);
    if (stream.has_header ? is_exception(name) : is_bare_exception(name)) {
      stream.in = ErrorStream::In::log;
      read_exception(stream, name, text);
      return true;
    }
    if (++stream.foreign_lines > kMaxForeignLines) stream.in = ErrorStream::In::log;
    return false;
  }

  void read_exception(ErrorStream& stream, std::string_view name, std::string_view line) {
    last_line_ = {};
    Evidence evidence = judge_exception(name, line);
    // Without this, an error in the handling of a timeout would hide the timeout.
    const bool says_nothing_new = stream.is_consequence && evidence.cause == Cause::own_error;
    if (stream.is_ignored || says_nothing_new) return;
    stream.was_evidence = evidence.proof != Proof::last;
    if (stream.is_other_failure) evidence.proof = std::max(evidence.proof, Proof::likely);
    add(stream, evidence, line, stream.place());
  }

  void read_log(ErrorStream& stream, std::string_view line) {
    constexpr std::string_view kThrown = "terminate called after throwing an instance of '";
    line = trimmed(line);
    if (line.starts_with(kThrown)) {
      const std::string_view type = line.substr(kThrown.size());
      if (type.size() < 2) return add(stream, {Proof::sure, Cause::own_error}, line);
      stream.thrown = type.substr(0, type.size() - 1);
      return;
    }
    if (read_table(stream, line)) return;
    if (const std::string_view name = class_in(line); is_bare_exception(name)) {
      Evidence evidence = judge_exception(name, line);
      evidence.proof = std::max(evidence.proof, Proof::likely);
      return add(stream, evidence, line);
    }
    const auto match = match_in(line);
    if (!match) {
      if (&stream == source_ || order_ == ErrorOrder::last) ++lines_after_;
      return;
    }
    if (line.starts_with("Fatal Python error: ")) stream.fatal = line;
    constexpr std::size_t kMaxContext = kMaxErrorText / 2;
    add(stream, match->evidence, line.substr(match->at > kMaxContext ? match->at : 0));
  }

  // torchrun's table of failures: "rank      : 1 (local_rank: 1)", "exitcode  : -9 (pid: 77)".
  bool read_table(ErrorStream& stream, std::string_view line) {
    if (line == "Failures:") return stream.is_other_failure = true;
    if (line.starts_with("Root Cause (first observed failure):")) {
      stream.is_other_failure = false;
      return stream.is_root_cause = true;
    }
    if (!stream.is_root_cause) return false;
    const std::vector<std::string_view> words = words_of(line, 3);
    if (words.size() < 3 || words[1] != ":") return false;
    if (words[0] == "rank" && !root_rank_) root_rank_ = parse_decimal(words[2]);
    if (words[0] == "exitcode") read_exit_code(stream, words[2]);
    return true;
  }

  void read_exit_code(ErrorStream& stream, std::string_view code) {
    stream.is_root_cause = false;
    if (!root_rank_) return;
    if (const auto positive = parse_decimal(code); positive && *positive > 0) {
      return add(stream, {Proof::last, Cause::own_error},
                 "its process ended with exit code " + std::to_string(*positive));
    }
    const auto number = code.starts_with('-') ? parse_decimal(code.substr(1)) : std::nullopt;
    if (!number) return;
    const auto signal = std::find_if(kFatalSignals.begin(), kFatalSignals.end(),
                                     [&](const FatalSignal& s) { return s.number == *number; });
    const bool is_known = signal != kFatalSignals.end();
    std::string text = "its process was killed by signal " + std::to_string(*number);
    if (is_known) text.append(" (").append(signal->name).append(")");
    add(stream, is_known ? signal->evidence : Evidence{Proof::exit_code, Cause::own_error}, text);
  }

  // Without any other evidence: "ddp-train: unknown key 'lr0'". The name alone does not tell an
  // error from "loss: 0.3".
  void read_last_line() {
    const std::string_view line = trimmed(last_line_);
    const std::size_t colon = line.find(": ");
    if (colon == std::string_view::npos) return;
    const std::string_view program = line.substr(0, colon);
    const bool is_word = words_of(program, 2).size() == 1 && program.size() <= 64;
    const bool is_ours = program.starts_with("ddp-");
    if (!is_word || is_any(program, kHarmlessLevels)) return;
    if (is_ours || has_any(line, kErrorWords)) {
      add(streams_[""], {Proof::last, Cause::own_error}, line);
    }
  }

  std::map<std::string_view, ErrorStream> streams_;
  std::string_view last_line_;
  std::optional<std::uint32_t> root_rank_;
  ErrorOrder order_;
  std::optional<Evidence> best_;
  int lines_after_ = 0;  // of the same stream
  const ErrorStream* source_ = nullptr;
  FirstError first_;
};

}  // namespace

FirstError find_first_error(std::string_view tail, ErrorOrder order) {
  const std::string text = plain_text(tail);
  ErrorFinder finder(order);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    finder.read(line);
  }
  return finder.take();
}

bool is_answer_to_a_signal(const FirstError& error) noexcept {
  return error.text.starts_with("KeyboardInterrupt") || error.text.starts_with("SystemExit");
}

}  // namespace ddp::guard

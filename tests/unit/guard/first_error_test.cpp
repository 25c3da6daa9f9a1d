// SPDX-License-Identifier: Apache-2.0
// The first error in the end of a rank's stderr, on short copies of what real programs print.
#include "spank_plugin/guard/first_error.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::guard {

// GoogleTest finds this by its name.
void PrintTo(Cause cause, std::ostream* out) {
  constexpr const char* kNames[] = {"none",         "host_memory",     "gpu_fault",
                                    "gpu_memory",   "own_error",       "crash",
                                    "device_error", "library_timeout", "cascade"};
  *out << kNames[static_cast<std::size_t>(cause)];
}

namespace {

constexpr std::string_view kHeader = "Traceback (most recent call last):\n";
constexpr std::string_view kUserFrame = "  File \"/home/u/train.py\", line 88, in step\n    go()\n";
constexpr std::string_view kDuring =
    "\nDuring handling of the above exception, another exception occurred:\n\n";
constexpr std::string_view kDirect =
    "\nThe above exception was the direct cause of the following exception:\n\n";
constexpr std::string_view kReset =
    "RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.7]:4242";

std::string traceback(std::string_view error, std::string_view frames = kUserFrame) {
  return std::string(kHeader).append(frames).append(error).append("\n");
}

// Every line with the prefix of a process.
std::string prefixed(std::string_view prefix, std::string_view lines) {
  std::string text(prefix);
  for (const char c : lines.substr(0, lines.size() - 1)) {
    text += c;
    if (c == '\n') text += prefix;
  }
  return text + "\n";
}

std::string root_cause(int rank, int exit_code, std::string_view others = "") {
  return traceback("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
                   "  File \"/usr/bin/torchrun\", line 8, in <module>\n") +
         "====================\ntrain.py FAILED\n--------------------\nFailures:\n" +
         std::string(others) +
         "--------------------\nRoot Cause (first observed failure):\n[0]:\n"
         "  time      : 2026-11-30_12:00:00\n  rank      : " +
         std::to_string(rank) + " (local_rank: 1)\n  exitcode  : " + std::to_string(exit_code) +
         " (pid: 77)\n  error_file: <N/A>\n";
}

struct LineCase {
  const char* line;
  Cause cause;
};

void PrintTo(const LineCase& c, std::ostream* out) {
  *out << c.line;
}

class OneLine : public testing::TestWithParam<LineCase> {};

TEST_P(OneLine, HasItsCauseAndIsShown) {
  const auto& [line, cause] = GetParam();
  const FirstError error = find_first_error("step 17\n" + std::string(line) + "\nstep 18\n");
  EXPECT_EQ(error.cause, cause);
  EXPECT_EQ(error.text, cause == Cause::none ? "" : line);
}

INSTANTIATE_TEST_SUITE_P(
    FirstError, OneLine,
    testing::Values(
        LineCase{"[ 4821.5] Out of memory: Killed process 77 (python)", Cause::host_memory},
        LineCase{"[ 1.2] Memory cgroup out of memory: Killed", Cause::host_memory},
        LineCase{"slurmstepd: error: Detected 1 oom-kill event(s)", Cause::host_memory},
        LineCase{"slurmstepd: error: Detected 1 oom_kill event in StepId=1.0", Cause::host_memory},
        LineCase{"srun: error: n1: task 0: Out Of Memory", Cause::host_memory},
        LineCase{"fork: Cannot allocate memory", Cause::host_memory},
        LineCase{"MemoryError", Cause::host_memory},
        LineCase{"numpy._core._exceptions._ArrayMemoryError: Unable to allocate 7.28 TiB",
                 Cause::host_memory},
        LineCase{"RuntimeError: DefaultCPUAllocator: can't allocate 8 bytes", Cause::host_memory},
        LineCase{"RuntimeError: worker is out of shared memory", Cause::host_memory},
        LineCase{"NVRM: Xid (PCI:0000:3b:00): 79, pid=77", Cause::gpu_fault},
        LineCase{"GPU 0000:3B:00.0: GPU has fallen off the bus.", Cause::gpu_fault},
        LineCase{"RuntimeError: CUDA error: uncorrectable ECC error encountered", Cause::gpu_fault},
        LineCase{"RuntimeError: CUDA error: uncorrectable NVLink error", Cause::gpu_fault},
        LineCase{"torch.OutOfMemoryError: Tried to allocate 8 GiB", Cause::gpu_memory},
        LineCase{"RuntimeError: CUDA out of memory. Tried to allocate 8 GiB", Cause::gpu_memory},
        LineCase{"RuntimeError: CUDA error: out of memory", Cause::gpu_memory},
        LineCase{"RuntimeError: HIP out of memory", Cause::gpu_memory},
        LineCase{"NCCL WARN Cuda failure 2 'out of memory'", Cause::gpu_memory},
        LineCase{"CUDA_ERROR_OUT_OF_MEMORY", Cause::gpu_memory},
        LineCase{"RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling",
                 Cause::gpu_memory},
        LineCase{"jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory",
                 Cause::gpu_memory}));

INSTANTIATE_TEST_SUITE_P(
    OwnErrors, OneLine,
    testing::Values(
        LineCase{"ValueError: bad sample 17", Cause::own_error},
        LineCase{"mypkg.BadException", Cause::own_error},
        LineCase{"prog: file.c:12: main: Assertion `x > 0' failed.", Cause::own_error},
        LineCase{"terminate called without an active exception", Cause::own_error},
        LineCase{"libc++abi: terminating due to uncaught exception of type E: x", Cause::own_error},
        LineCase{"torch.distributed.DistNetworkError: port: 29500, Address already in use",
                 Cause::own_error},
        LineCase{"Error while creating shared memory segment /dev/shm/nccl-x", Cause::own_error},
        LineCase{"run.sh: line 3: foo: command not found", Cause::own_error},
        LineCase{"python: can't open file 'x.py': [Errno 2] No such file or directory",
                 Cause::own_error},
        LineCase{"bash: ./run.sh: Permission denied", Cause::own_error},
        LineCase{"MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
                 Cause::own_error},
        LineCase{"Killed", Cause::own_error},
        LineCase{"bash: line 1: 77 Killed     python train.py", Cause::own_error}));

INSTANTIATE_TEST_SUITE_P(
    CrashesAndDevices, OneLine,
    testing::Values(
        LineCase{"bash: line 1: 77 Segmentation fault      (core dumped) python", Cause::crash},
        LineCase{"ERROR: Unexpected segmentation fault encountered in worker.", Cause::crash},
        LineCase{"Fatal Python error: Segmentation fault", Cause::crash},
        LineCase{"Fatal Python error: Cannot recover from stack overflow.", Cause::crash},
        LineCase{"Bus error (core dumped)", Cause::crash},
        LineCase{"Illegal instruction", Cause::crash},
        LineCase{"Floating point exception", Cause::crash},
        LineCase{"==77==ERROR: AddressSanitizer: heap-use-after-free", Cause::crash},
        LineCase{"*** stack smashing detected ***: terminated", Cause::crash},
        LineCase{"double free or corruption (!prev)", Cause::crash},
        LineCase{"free(): invalid pointer", Cause::crash},
        LineCase{"malloc(): unaligned tcache chunk detected", Cause::crash},
        LineCase{"munmap_chunk(): invalid pointer", Cause::crash},
        LineCase{"corrupted size vs. prev_size", Cause::crash},
        LineCase{"Aborted (core dumped)", Cause::crash},
        LineCase{"run.sh: line 3: 77 Aborted     ./prog", Cause::crash},
        LineCase{"Aborted", Cause::crash},
        LineCase{"RuntimeError: CUDA error: an illegal memory access was encountered",
                 Cause::device_error},
        LineCase{"RuntimeError: HIP error: invalid", Cause::device_error},
        LineCase{"device-side assert triggered", Cause::device_error},
        LineCase{"an illegal memory access", Cause::device_error},
        LineCase{"CUDA_ERROR_ILLEGAL_ADDRESS", Cause::device_error},
        LineCase{"RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", Cause::device_error},
        LineCase{"RuntimeError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL version 2",
                 Cause::device_error},
        LineCase{"x.cu:93: f: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.",
                 Cause::device_error},
        LineCase{"[E x.cpp:828] [Rank 0] Watchdog caught collective operation timeout: Work",
                 Cause::library_timeout},
        LineCase{"Rank 1 failed to pass monitoredBarrier in 30000 ms", Cause::library_timeout},
        LineCase{"RuntimeError: Timed out waiting 1800000ms for recv", Cause::library_timeout},
        LineCase{"torch.distributed.DistStoreError: wait failed", Cause::library_timeout},
        LineCase{"RuntimeError: Socket Timeout", Cause::library_timeout},
        LineCase{"jax.errors.JaxRuntimeError: DEADLINE_EXCEEDED: Barrier",
                 Cause::library_timeout}));

INSTANTIATE_TEST_SUITE_P(
    Harmless, OneLine,
    testing::Values(LineCase{"train.py:3: UserWarning: ValueError is likely", Cause::none},
                    LineCase{"UserWarning: deprecated", Cause::none},
                    LineCase{"WARNING: NaN or Inf found in input tensor.", Cause::none},
                    LineCase{"INFO: no Error here", Cause::none},
                    LineCase{"Errors: 0", Cause::none}, LineCase{"Error: 0", Cause::none},
                    LineCase{"cat: No such file or directory, continuing", Cause::none},
                    LineCase{"Aborted the upload", Cause::none},
                    LineCase{"Killed 3 stale workers", Cause::none}));

// Lines that are never blamed while there is anything else.
const std::vector<const char*> kCascades = {
    "RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.7]:4242",
    "socketProgressOpt: Call to recv failed : Connection reset by peer",
    "ConnectionResetError: [Errno 104]",
    "BrokenPipeError: [Errno 32]",
    "write: Broken pipe",
    "Failed to recv, got 0 bytes. Connection was likely closed.",
    "[W TCPStore.cpp:106] recvValue failed on SocketImpl(fd=3)",
    "[W TCPStore.cpp:125] sendBytes failed on SocketImpl(fd=3)",
    "torch.distributed.DistNetworkError: The client socket has timed out",
    "ddp::PeerFailure: rank 3 failed",
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited",
    "NCCL communicator was aborted on rank 2.",
    "ncclRemoteError: A call failed possibly due to a network error",
    "ncclSystemError: System call (e.g. socket, malloc) or external library call failed",
    "socketPollConnect: connect to 10.0.0.7<4242> returned",
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature",
    "This most likely indicates that another task died",
    "ddp-train: rank 1 (n1, process 7) exited unexpectedly: it was killed or crashed",
    "ddp-train: rank 1 (n1, process 7) has been silent for 8 s, and the machine does not answer",
    "torch.distributed.elastic.multiprocessing.api.SignalException: got signal: 15",
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
};

TEST(FirstErrorCascade, AloneIsACascadeAndShown) {
  for (const std::string line : kCascades) {
    const FirstError error = find_first_error(line + "\n");
    EXPECT_EQ(error.cause, Cause::cascade) << line;
    EXPECT_EQ(error.text, line);
  }
}

TEST(FirstErrorCascade, NeverWins) {
  const std::vector<std::pair<std::string, Cause>> others = {
      {traceback("KeyError: 'lr'"), Cause::own_error},
      {"ValueError: bad\n", Cause::own_error},
      {"Segmentation fault\n", Cause::crash},
      {"Watchdog caught collective operation timeout\n", Cause::library_timeout}};
  for (const std::string line : kCascades) {
    for (const auto& [other, cause] : others) {
      EXPECT_EQ(find_first_error(line + "\n" + other).cause, cause) << line << "\n" << other;
      EXPECT_EQ(find_first_error(other + line + "\n").cause, cause) << line << "\n" << other;
      EXPECT_EQ(find_first_error(traceback(line) + other).cause, cause) << line << "\n" << other;
    }
  }
}

// Healthy jobs print such complaints, too, so one before an echo proves nothing.
TEST(FirstErrorCascade, WinsOverAComplaintOfAShell) {
  constexpr const char* kComplaint = "x.sh: line 3: foo: command not found\n";
  for (const std::string line : kCascades) {
    if (line.starts_with("torch.distributed.elastic")) continue;  // proves less than a cascade
    EXPECT_EQ(find_first_error(kComplaint + line + "\n").cause, Cause::cascade) << line;
  }
}

TEST(FirstErrorOrder, OfOneProcessTheLastErrorCounts) {
  const std::string handled = traceback("FileNotFoundError: no cache");
  const std::string fatal = traceback("ZeroDivisionError: real");
  const std::string text = handled + "epoch 1\n" + fatal;
  EXPECT_EQ(find_first_error(text, ErrorOrder::last).text, "ZeroDivisionError: real");
  EXPECT_EQ(find_first_error(text, ErrorOrder::first).text, "FileNotFoundError: no cache");
  EXPECT_EQ(find_first_error(traceback("torch.OutOfMemoryError: CUDA out of memory") + fatal,
                             ErrorOrder::last)
                .text,
            "ZeroDivisionError: real");
  EXPECT_EQ(find_first_error(fatal + traceback("RuntimeError: Connection closed by peer"),
                             ErrorOrder::last)
                .text,
            "ZeroDivisionError: real");
}

TEST(FirstErrorOrder, AnErrorThatTheProgramOutlivesCountsLess) {
  std::string epochs;
  for (int i = 0; i < 100; ++i) epochs += "epoch " + std::to_string(i) + " loss 0.1\n";
  const std::string handled = traceback("FileNotFoundError: no cache") + epochs;
  EXPECT_EQ(find_first_error(handled, ErrorOrder::last).cause, Cause::none);
  EXPECT_EQ(find_first_error(handled, ErrorOrder::first).text, "FileNotFoundError: no cache");
  EXPECT_EQ(find_first_error(handled + traceback("KeyError: 'lr'"), ErrorOrder::first).text,
            "KeyError: 'lr'");
}

TEST(FirstErrorOther, SummariesOfLaunchersAreNoErrors) {
  for (const char* line :
       {"srun: error: n1: task 1: Exited with exit code 1", "srun: error: n1: task 1: Killed",
        "mpirun detected that one or more processes exited with non-zero status",
        "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-30 ***"}) {
    EXPECT_EQ(find_first_error(line).cause, Cause::none) << line;
  }
}

TEST(FirstErrorOther, OtherLanguagesHaveErrorsToo) {
  for (const char* line :
       {"Fortran runtime error: Index '11' of dimension 1 of array 'a' above upper bound of 10",
        "ERROR: LoadError: UndefVarError: `x` not defined",
        "thread 'main' panicked at src/main.rs:4:5:",
        "Exception in thread \"main\" java.lang.NullPointerException",
        "F0101 00:00:00.0 7 a.cc:3] Check failed: x == y", "ERROR STOP 3",
        "x.sh: line 2: DATA: unbound variable",
        "Lmod has detected the following error: unknown module"}) {
    EXPECT_EQ(find_first_error(line).cause, Cause::own_error) << line;
  }
}

TEST(FirstErrorCascade, TheFirstLineOfSeveralIsShown) {
  EXPECT_EQ(find_first_error("a: Broken pipe\nb: Broken pipe\n").text, "a: Broken pipe");
}

// An abort is how NCCL's watchdog ends a process whose peer has failed.
TEST(FirstErrorCascade, AnAbortIsNoCause) {
  const std::string abort =
      "terminate called after throwing an instance of 'c10::DistBackendError'\n"
      "  what():  [Rank 0] NCCL communicator was aborted on rank 0.\n"
      "Fatal Python error: Aborted\nbash: line 1: 77 Aborted      (core dumped) python\n"
      "Aborted\n";
  const FirstError error = find_first_error(abort);
  EXPECT_EQ(error.cause, Cause::cascade);
  EXPECT_EQ(error.text, "c10::DistBackendError: [Rank 0] NCCL communicator was aborted on rank 0.");
  EXPECT_EQ(find_first_error("Broken pipe\n" + root_cause(1, -6)).cause, Cause::cascade);
}

TEST(FirstErrorTraceback, HasTheMessageAndThePlace) {
  const FirstError error = find_first_error("step 1\n" + traceback("ValueError: bad sample 17"));
  EXPECT_EQ(error.cause, Cause::own_error);
  EXPECT_EQ(error.text, "ValueError: bad sample 17");
  EXPECT_EQ(error.place, "train.py:88");
  EXPECT_EQ(error.rank, std::nullopt);
}

TEST(FirstErrorTraceback, PlaceIsTheUsersInnermostFrame) {
  const std::vector<const char*> libraries = {
      "/opt/venv/lib/site-packages/torch/module.py", "/opt/dist-packages/torch/module.py",
      "/usr/lib/python2.7/json/decoder.py", "/opt/conda/lib/python3.10/json/decoder.py",
      "<frozen importlib._bootstrap>"};
  for (const std::string library : libraries) {
    const std::string frame = "  File \"" + library + "\", line 5, in f\n    g()\n";
    const std::string outer = "  File \"main.py\", line 2, in <module>\n    main()\n";
    EXPECT_EQ(
        find_first_error(traceback("KeyError: 1", outer + std::string(kUserFrame) + frame)).place,
        "train.py:88")
        << library;
    EXPECT_EQ(find_first_error(traceback("KeyError: 1", frame)).place,
              library.substr(library.rfind('/') + 1) + ":5");
  }
}

TEST(FirstErrorTraceback, AnyClassCounts) {
  for (const char* error : {"BadSample: 17", "socket.timeout: timed out", "queue.Empty",
                            "pkg.main.<locals>.Bad: x", "StopIteration", "UserWarning: as error"}) {
    EXPECT_EQ(find_first_error(traceback(error)).text, error);
  }
}

TEST(FirstErrorTraceback, LogLinesInBetweenAreNotTheError) {
  const std::string frames = std::string(kUserFrame) + "INFO: saving\nlr: 0.1\nepoch 3 done\n";
  EXPECT_EQ(find_first_error(traceback("BadSample: 17", frames)).text, "BadSample: 17");
  std::string many;
  for (int i = 0; i < 20; ++i) many += "step done\n";
  EXPECT_EQ(find_first_error(traceback("Result: 17", many)).cause, Cause::none);
}

TEST(FirstErrorTraceback, ItsCodeIsNotEvidence) {
  const std::string frames =
      "  File \"a.py\", line 1, in f\n    raise E(\"CUDA out of memory\")  # Segmentation fault\n"
      "          ~~^~~\n";
  EXPECT_EQ(find_first_error(traceback("KeyError: 1", frames)).cause, Cause::own_error);
}

TEST(FirstErrorTraceback, MayStartBeforeTheTail) {
  const FirstError error = find_first_error("ep()\n" + std::string(kUserFrame) + "KeyError: 1\n");
  EXPECT_EQ(error.text, "KeyError: 1");
  EXPECT_EQ(error.place, "train.py:88");
}

TEST(FirstErrorTraceback, SyntaxErrorHasAPlace) {
  const FirstError error = find_first_error(
      "  File \"a.py\", line 3\n    x = =\n        ^\nSyntaxError: invalid syntax\n");
  EXPECT_EQ(error.text, "SyntaxError: invalid syntax");
  EXPECT_EQ(error.place, "a.py:3");
}

TEST(FirstErrorTraceback, TheEarliestWins) {
  EXPECT_EQ(find_first_error(traceback("KeyError: 1") + traceback("ValueError: 2")).text,
            "KeyError: 1");
  EXPECT_EQ(find_first_error(traceback(kReset) + traceback("ValueError: 2")).text, "ValueError: 2");
}

TEST(FirstErrorTraceback, StrongerCausesWin) {
  const std::vector<std::pair<std::string, Cause>> ascending = {
      {traceback(kReset), Cause::cascade},
      {"Watchdog caught collective operation timeout\n", Cause::library_timeout},
      {traceback("RuntimeError: CUDA error: x"), Cause::device_error},
      {"Segmentation fault\n", Cause::crash},
      {traceback("KeyError: 1"), Cause::own_error},
      {traceback("RuntimeError: CUDA out of memory"), Cause::gpu_memory},
      {"GPU has fallen off the bus\n", Cause::gpu_fault},
      {traceback("MemoryError"), Cause::host_memory}};
  std::string before, after;
  for (const auto& [text, cause] : ascending) {
    before += text;
    after.insert(0, text);
    EXPECT_EQ(find_first_error(before).cause, cause);
    EXPECT_EQ(find_first_error(after).cause, cause);
  }
}

// A handled problem that was only logged.
TEST(FirstErrorTraceback, WinsOverALogLine) {
  EXPECT_EQ(find_first_error("CUDA out of memory, smaller batch\n" + traceback("KeyError: 1")).text,
            "KeyError: 1");
  EXPECT_EQ(find_first_error("ValueError: bad\n" + traceback("KeyError: 1")).text, "KeyError: 1");
}

TEST(FirstErrorTraceback, AShellsComplaintIsWeaker) {
  EXPECT_EQ(find_first_error("cat: x: No such file or directory\nValueError: bad\n").text,
            "ValueError: bad");
  EXPECT_EQ(find_first_error("cat: x: No such file or directory\n" + root_cause(1, -9)).text,
            "its process was killed by signal 9 (SIGKILL)");
}

TEST(FirstErrorChain, TheFirstIsBlamed) {
  for (const std::string_view marker : {kDuring, kDirect}) {
    const std::string chain = traceback("KeyError: 1").append(marker) +
                              traceback("ValueError: 2").append(marker) +
                              traceback("RuntimeError: 3");
    EXPECT_EQ(find_first_error(chain).text, "KeyError: 1");
  }
}

// What follows from a cascade or a timeout is not the rank's own error, either.
TEST(FirstErrorChain, TheConsequenceOfACascadeIsACascade) {
  for (const std::string_view marker : {kDuring, kDirect}) {
    const std::string end = std::string(marker) + traceback("RuntimeError: training failed");
    const FirstError error = find_first_error(traceback(kReset) + end + end);
    EXPECT_EQ(error.cause, Cause::cascade);
    EXPECT_EQ(error.text, kReset);
    EXPECT_EQ(find_first_error(traceback("RuntimeError: Socket Timeout") + end).cause,
              Cause::library_timeout);
    // Unchained, it counts.
    EXPECT_EQ(find_first_error(traceback(kReset) + end + traceback("KeyError: 1")).text,
              "KeyError: 1");
  }
}

TEST(FirstErrorChain, AStrongerCauseInItWins) {
  const std::string chain =
      traceback("KeyError: 1").append(kDuring) + traceback("RuntimeError: CUDA out of memory");
  EXPECT_EQ(find_first_error(chain).cause, Cause::gpu_memory);
}

TEST(FirstErrorChain, CountsWithoutItsBeginning) {
  EXPECT_EQ(find_first_error(std::string(kDuring) + traceback("KeyError: 1")).text, "KeyError: 1");
}

TEST(FirstErrorExit, CountsOnlyAlone) {
  for (const std::string exit :
       {"SystemExit: 3", "SystemExit: CUDA error: x", "KeyboardInterrupt"}) {
    EXPECT_EQ(find_first_error(traceback(exit)).text, exit);
    EXPECT_EQ(find_first_error(traceback(exit)).cause, Cause::own_error);
    EXPECT_EQ(find_first_error(traceback(exit) + traceback("KeyError: 1")).text, "KeyError: 1");
    EXPECT_EQ(find_first_error(traceback(exit).append(kDuring) + traceback("KeyError: 1")).text,
              "KeyError: 1");
    EXPECT_EQ(find_first_error(traceback(exit) + traceback(kReset)).cause, Cause::cascade);
  }
  EXPECT_EQ(find_first_error("MPI_ABORT was invoked\nwrite: Broken pipe\n").cause, Cause::cascade);
}

TEST(FirstErrorIgnored, EndsNothing) {
  for (const std::string header :
       {"Exception ignored in: <function Pool.__del__ at 0x7f>\n", "--- Logging error ---\n"}) {
    const std::string ignored =
        header + traceback("KeyError: 1").append(kDuring) + traceback("ValueError: 2");
    EXPECT_EQ(find_first_error(ignored).cause, Cause::none);
    EXPECT_EQ(find_first_error(ignored + traceback("TypeError: 3")).text, "TypeError: 3");
  }
  EXPECT_EQ(
      find_first_error("Exception in thread Thread-1 (run):\n" + traceback("KeyError: 1")).text,
      "KeyError: 1");
}

TEST(FirstErrorWrapper, TheWrappedErrorIsBlamed) {
  const std::string library =
      "  File \"/x/site-packages/torch/_utils.py\", line 705, in reraise\n    raise exception\n";
  const std::string loader =
      traceback("ValueError: Caught ValueError in DataLoader worker process 0.", library) +
      "Original " + traceback("ValueError: bad sample 17");
  EXPECT_EQ(find_first_error(loader).text, "ValueError: bad sample 17");
  EXPECT_EQ(find_first_error(loader).place, "train.py:88");
  const std::string spawn =
      traceback("torch.multiprocessing.spawn.ProcessRaisedException: ", library) +
      "\n-- Process 1 terminated with the following error:\n" + traceback("KeyError: 1");
  EXPECT_EQ(find_first_error(spawn).text, "KeyError: 1");
  const std::string pool = "multiprocessing.pool.RemoteTraceback: \n\"\"\"\n" +
                           traceback("KeyError: 1") + "\"\"\"\n" + std::string(kDirect) +
                           traceback("KeyError: 1", library);
  EXPECT_EQ(find_first_error(pool).place, "train.py:88");
}

TEST(FirstErrorPrefix, SeparatesProcesses) {
  // Two tracebacks, line by line.
  const auto interleaved = [](const std::string& first, const std::string& second) {
    return first + std::string(kHeader) + second + std::string(kHeader) + first +
           "  File \"a.py\", line 1, in f\n" + second + "  File \"b.py\", line 2, in g\n" + second +
           std::string(kReset) + "\n" + first + "BadSample: 17\n";
  };
  for (const char* style :
       {"[rank#]: ", "#: ", "[default#]:", " #: ", "[default#]:[rank#]: ", "#: [rank#]: "}) {
    std::string first(style), second(style);
    for (char& c : first) c = c == '#' ? '3' : c;
    for (char& c : second) c = c == '#' ? '4' : c;
    const FirstError error = find_first_error(interleaved(first, second));
    EXPECT_EQ(error.text, "BadSample: 17") << style;
    EXPECT_EQ(error.place, "a.py:1") << style;
    const bool names_rank = first.find("rank") != std::string::npos;
    EXPECT_EQ(error.rank, names_rank ? std::optional<std::uint32_t>(3) : std::nullopt) << style;
  }
}

TEST(FirstErrorPrefix, ARankThatReportsAnotherIsNotTheFirst) {
  EXPECT_EQ(find_first_error(prefixed("[rank0]: ", traceback(kReset))).rank, std::nullopt);
  EXPECT_EQ(find_first_error("[rank0]:[E] Watchdog caught collective operation timeout\n").rank,
            std::nullopt);
}

TEST(FirstErrorTorchrun, ASignalIsTheCauseIfNothingElseIs) {
  struct SignalCase {
    int number;
    const char* text;
    Cause cause;
  };
  for (const auto& [number, text, cause] :
       {SignalCase{4, "4 (SIGILL)", Cause::crash}, SignalCase{6, "6 (SIGABRT)", Cause::crash},
        SignalCase{7, "7 (SIGBUS)", Cause::crash}, SignalCase{8, "8 (SIGFPE)", Cause::crash},
        SignalCase{9, "9 (SIGKILL)", Cause::own_error},
        SignalCase{11, "11 (SIGSEGV)", Cause::crash},
        SignalCase{15, "15 (SIGTERM)", Cause::cascade}, SignalCase{64, "64", Cause::own_error}}) {
    const FirstError error = find_first_error(root_cause(1, -number));
    EXPECT_EQ(error.cause, cause);
    EXPECT_EQ(error.text, "its process was killed by signal " + std::string(text));
    EXPECT_EQ(error.rank, 1U);
  }
  EXPECT_EQ(find_first_error(traceback(kReset) + root_cause(1, -9)).cause, Cause::own_error);
  const FirstError own = find_first_error(traceback("KeyError: 1") + root_cause(5, -9));
  EXPECT_EQ(own.text, "KeyError: 1");
  EXPECT_EQ(own.rank, 5U);
}

TEST(FirstErrorTorchrun, AWorkerThatJustExitsIsNamed) {
  const FirstError error = find_first_error(root_cause(1, 3));
  EXPECT_EQ(error.text, "its process ended with exit code 3");
  EXPECT_EQ(error.rank, 1U);
}

TEST(FirstErrorTorchrun, TheRootCauseWinsOverOtherFailures) {
  const std::string other =
      "[1]:\n  rank      : 2 (local_rank: 2)\n  exitcode  : -11 (pid: 78)\n"
      "  traceback : Traceback (most recent call last):\n"
      "    File \"other.py\", line 1, in f\n      g()\n  ValueError: late\n";
  const std::string table =
      root_cause(1, 1, other) +
      "  traceback : Traceback (most recent call last):\n"
      "    File \"/home/u/train.py\", line 88, in step\n      go()\n  BadSample: 17\n";
  const FirstError error = find_first_error(prefixed("0: ", table));
  EXPECT_EQ(error.text, "BadSample: 17");
  EXPECT_EQ(error.place, "train.py:88");
  EXPECT_EQ(error.rank, 1U);
}

TEST(FirstErrorCpp, AnUncaughtExceptionHasTypeAndMessage) {
  const std::string thrown = "terminate called after throwing an instance of '";
  const FirstError error =
      find_first_error(thrown + "std::runtime_error'\n  what():  bad file\nAborted\n");
  EXPECT_EQ(error.cause, Cause::own_error);
  EXPECT_EQ(error.text, "std::runtime_error: bad file");
  EXPECT_EQ(find_first_error(thrown + "std::bad_alloc'\n  what():  std::bad_alloc\n").cause,
            Cause::host_memory);
  EXPECT_EQ(find_first_error(thrown + "int'\nterminate called recursively\n  what():  x").text,
            "int: x");
  EXPECT_EQ(find_first_error(thrown + "int'\nAborted\n").text, "int");
  EXPECT_EQ(find_first_error(thrown + "int'").text, "int");
  EXPECT_EQ(find_first_error(thrown).cause, Cause::own_error);
  EXPECT_EQ(find_first_error(thrown + "c10::Error'\n  what():  CUDA error: x\n").cause,
            Cause::device_error);
}

TEST(FirstErrorDump, PlaceIsInTheThreadThatCrashed) {
  const std::string dump =
      "Fatal Python error: Segmentation fault\n\n"
      "Thread 0x01 (most recent call first):\n  File \"/home/u/other.py\", line 1 in wait\n\n"
      "Current thread 0x02 (most recent call first):\n"
      "  File \"/x/site-packages/lib.py\", line 9 in call\n"
      "  File \"/home/u/train.py\", line 88 in step\n  File \"main.py\", line 2 in <module>\n\n"
      "Thread 0x03 (most recent call first):\n  File \"/home/u/other.py\", line 3 in wait\n";
  const FirstError error = find_first_error(dump);
  EXPECT_EQ(error.cause, Cause::crash);
  EXPECT_EQ(error.text, "Fatal Python error: Segmentation fault");
  EXPECT_EQ(error.place, "train.py:88");
  // The same without a crash, printed on request.
  EXPECT_EQ(find_first_error(dump.substr(dump.find("Thread"))).cause, Cause::none);
  const std::string at_end = dump.substr(0, dump.find("  File \"main"));
  EXPECT_EQ(find_first_error(at_end).place, "train.py:88");
}

TEST(FirstErrorDevice, TheKernelsAssertionHasThePlaceOfWhatFollows) {
  const std::string line = "x.cu:93: f: block: [0,0,0], thread: [1,0,0] Assertion `i < n` failed.";
  const std::string report = traceback("RuntimeError: CUDA error: device-side assert triggered");
  const FirstError error = find_first_error(line + "\n" + report);
  EXPECT_EQ(error.text, line);
  EXPECT_EQ(error.place, "train.py:88");
  // Another process's.
  EXPECT_EQ(find_first_error(line + "\n" + prefixed("[rank1]: ", report)).place, "");
}

TEST(FirstErrorLastLine, CountsOnlyAlone) {
  for (const std::string line :
       {"ddp-train: rank 3 left", "train.py: error: --lr", "Error: --lr", "ERROR: --lr",
        "x: x failed", "x: cannot open x", "x: can't open x", "x: unable to open x", "x: invalid x",
        "x: unknown x", "x: missing x", "x: unexpected x", "x: expected x", "x: x refused",
        "x: x is not a y", "x: x must be y", "x: --lr is required", "fatal: x", "FATAL: x"}) {
    const FirstError error = find_first_error("step: 1\n" + line + "\n\n");
    EXPECT_EQ(error.cause, Cause::own_error) << line;
    EXPECT_EQ(error.text, line);
    EXPECT_EQ(find_first_error("write: Broken pipe\n" + line).cause, Cause::cascade) << line;
    EXPECT_EQ(find_first_error(line + "\nstep 2\n").cause, Cause::none) << line;
  }
  for (const std::string line : {"loss: 0.3", "WARNING: cannot save", "WARN: cannot save",
                                 "INFO: cannot save", "DEBUG: cannot save", "NOTE: cannot save",
                                 "epoch done: not bad", "cannot open x", ": failed"}) {
    EXPECT_EQ(find_first_error(line).cause, Cause::none) << line;
  }
}

TEST(FirstErrorText, ProgressBarsAndColorsAreRemoved) {
  const FirstError error = find_first_error(
      "\r 45%|###  | 45/100\r 46%|###  | 46/100\r\x1b[A"
      "Traceback (most recent call last):\r\n"
      "  File \x1b[35m\"/home/u/train.py\"\x1b[0m, line \x1b[35m88\x1b[0m, in step\r\n"
      "\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m\r\n");
  EXPECT_EQ(error.text, "ValueError: bad");
  EXPECT_EQ(error.place, "train.py:88");
}

TEST(FirstErrorText, ATracebackMayFollowABarOnItsLine) {
  const FirstError error = find_first_error("  4%|#  | 4/99" + traceback("ValueError: bad"));
  EXPECT_EQ(error.text, "ValueError: bad");
  EXPECT_EQ(error.place, "train.py:88");
}

TEST(FirstErrorText, IsPrintableAndShort) {
  EXPECT_EQ(find_first_error("ValueError: \x01\xff\x1b!").text,
            "ValueError: ??"
            "?!");
  const std::string text = find_first_error("ValueError: " + std::string(500, 'x')).text;
  EXPECT_EQ(text.size(), 200U);
  EXPECT_TRUE(text.ends_with("x..."));
  EXPECT_LE(
      find_first_error(traceback("KeyError: 1", "  File \"/" + std::string(500, 'x') + "\", line " +
                                                    std::string(50, '1') + "\n"))
          .place.size(),
      100U);
}

TEST(FirstErrorText, ShowsTheEvidenceOfALongLine) {
  EXPECT_EQ(find_first_error(std::string(500, '.') + "CUDA out of memory").text,
            "CUDA out of memory");
}

TEST(FirstErrorText, NothingIsNone) {
  for (const char* text : {"", "\n", "\r", "\x1b[", "[", "[rank", "[rank3]:", "3: ", "step 1\n"}) {
    const FirstError error = find_first_error(text);
    EXPECT_EQ(error.cause, Cause::none) << text;
    EXPECT_EQ(error.text + error.place, "");
    EXPECT_EQ(error.rank, std::nullopt);
  }
}

// Would take minutes if any step were quadratic.
TEST(FirstErrorFuzz, RepeatedPiecesTakeLinearTime) {
  for (const std::string piece : {"x",
                                  " ",
                                  "\n",
                                  "\r",
                                  "\x1b[",
                                  "[rank1]:",
                                  "1: ",
                                  "|",
                                  ": ",
                                  "'",
                                  "  File \"",
                                  "Error",
                                  "Traceback (most recent call last):",
                                  "  File \"a\", line 1\n",
                                  "[default",
                                  ".",
                                  "_",
                                  "Traceback (most recent call last):\n",
                                  "Connection ",
                                  "terminate called after throwing an "
                                  "instance of '",
                                  "Current thread (most recent call first):\n",
                                  "\n ",
                                  "Original "}) {
    std::string text;
    while (text.size() < 64 * 1024) text += piece;
    EXPECT_LE(find_first_error(text).text.size(), 200U);
    text += "\nValueError: bad\n";
    EXPECT_LE(find_first_error(text).text.size(), 200U);
  }
  std::string ranks, chain, nested;
  for (int i = 0; ranks.size() < 64 * 1024; ++i) ranks += "[rank" + std::to_string(i) + "]: x\n";
  EXPECT_EQ(find_first_error(ranks).cause, Cause::none);
  while (chain.size() < 64 * 1024) chain += traceback("KeyError: 1").append(kDuring);
  EXPECT_EQ(find_first_error(chain).text, "KeyError: 1");
  for (int i = 0; nested.size() < 64 * 1024; ++i) {
    nested += std::string(static_cast<std::size_t>(i), ' ').append(kHeader);
  }
  EXPECT_EQ(find_first_error(nested).cause, Cause::none);
}

TEST(FirstErrorFuzz, RandomTextIsSafe) {
  const std::vector<std::string> pieces = {std::string(kHeader),
                                           std::string(kUserFrame),
                                           std::string(kDuring),
                                           "ValueError: x\n",
                                           "[rank1]: ",
                                           "3: ",
                                           "\x1b[",
                                           "\r",
                                           "\n",
                                           " ",
                                           "what():  ",
                                           "Failures:\n",
                                           "exitcode  : -9\n",
                                           "rank      : 1\n",
                                           "Root Cause (first observed failure):\n",
                                           "Fatal Python error: x\n",
                                           "terminate called after throwing an instance of '",
                                           "(most recent call first):\n",
                                           "Current thread ",
                                           "Original ",
                                           std::string(1, '\0'),
                                           "'\n",
                                           "Exception ignored in\n"};
  std::mt19937 random(7);
  for (int run = 0; run < 300; ++run) {
    std::string text;
    while (text.size() < 2000) {
      if (random() % 4 == 0) text += static_cast<char>(random() % 256);
      text += pieces[random() % pieces.size()];
    }
    const FirstError error = find_first_error(std::string_view(text).substr(random() % 100));
    EXPECT_LE(error.text.size(), 200U);
    for (const char c : error.text + error.place) EXPECT_TRUE(c >= ' ' && c <= '~');
    EXPECT_EQ(error.cause == Cause::none, error.text.empty());
  }
  std::string bytes(64 * 1024, ' ');
  for (char& c : bytes) c = static_cast<char>(random() % 256);
  EXPECT_LE(find_first_error(bytes).text.size(), 200U);
}

}  // namespace
}  // namespace ddp::guard

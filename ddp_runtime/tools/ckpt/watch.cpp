// SPDX-License-Identifier: Apache-2.0
// ddp-ckpt watch: seals the checkpoints of a running job, until it is told to end.

#include <fmt/format.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <time.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "base/text.h"
#include "ddp_runtime/tools/ckpt/commands.h"
#include "ddp_runtime/tools/ckpt/text.h"
#include "hdf5_ckpt/core/error.h"
#include "hdf5_ckpt/seal/sealer.h"

namespace ddp::ckpt::tool {
namespace {

namespace fs = std::filesystem;

// Blocks the signals that end this process, also in the threads that it starts later.
sigset_t ending_signals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ending, number);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  return ending;
}

// Returns whether one came.
bool wait_for(const sigset_t& ending, std::chrono::milliseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec wait = {seconds.count(), std::chrono::nanoseconds(time - seconds).count()};
  return sigtimedwait(&ending, nullptr, &wait) > 0;
}

void print(const Sealer::Outcome& outcome) {
  if (outcome.problem.empty())
    fmt::print("{}\n", sealed_text(outcome.checkpoint, outcome.contents));
  else
    fmt::print(stderr, "ddp-ckpt: {}\n", outcome.problem);
  std::fflush(stdout);
}

// A file server that does not answer for a while must not end it. `told` is what was said last.
void look(Sealer& sealer, std::string& told) {
  std::string problem;
  try {
    for (const Sealer::Outcome& outcome : sealer.look(Clock::now())) print(outcome);
  } catch (const Error& error) {
    problem = error.what();
    if (problem != told) fmt::print(stderr, "ddp-ckpt: {}; trying again\n", problem);
  }
  told = problem;
}

}  // namespace

int run_watch(const fs::path& root, std::chrono::seconds quiet, const Output& output) {
  const sigset_t ending = ending_signals();
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // it is in the background of a job script
  Sealer sealer(root, quiet, {output.threads, {}});
  const auto interval = std::clamp<std::chrono::milliseconds>(
      quiet / 4, std::chrono::milliseconds(100), std::chrono::seconds(5));
  std::string told;
  do look(sealer, told);
  while (!wait_for(ending, interval));
  // The last one may have been saved just before, and a second signal is a hurry.
  do look(sealer, told);
  while (sealer.is_waiting() && !wait_for(ending, interval));
  for (const fs::path& path : sealer.unfinished())
    fmt::print(stderr, "not sealed: '{}': nothing says that its save has finished\n",
               path.string());
  return 0;
}

}  // namespace ddp::ckpt::tool

// SPDX-License-Identifier: Apache-2.0
// Whether, and when, a failed program is started again. A restart fixes a node, not a program, so a
// program that fails alike at the same step, or never makes a step, is not started for ever.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ddp_runtime/elastic/events.h"
#include "ddp_runtime/elastic/settings.h"

namespace ddp::elastic {

class RestartPolicy {
 public:
  explicit RestartPolicy(const Settings& settings);

  void started(std::int64_t step, Seconds now);
  void progressed(std::int64_t step, Seconds now);
  std::int64_t step() const noexcept { return step_; }

  struct Failure {
    std::string signature;           // as FailureReport::signature()
    std::vector<std::string> nodes;  // that are to blame
    bool lost_node = false;          // which says nothing about the program
    bool started = true;             // a rank had started
  };
  // A generation failed. Returns why the program is not to be started again, or nothing.
  std::optional<std::string> failed(const Failure& failure);
  // The pause before the next start.
  Seconds pause() const;
  int restarts_left() const noexcept { return left_; }
  // The program has told of a step, in any generation.
  bool ever_made_step() const noexcept { return ever_made_step_; }

 private:
  std::optional<std::string> failed_to_launch();

  Settings settings_;
  int left_;
  std::int64_t step_ = 0;
  std::optional<std::int64_t> first_step_;  // that this generation told of
  bool made_step_ = false;
  bool ever_made_step_ = false;
  int failed_launches_ = 0;  // in a row
  Seconds since_ = 0;        // the last start or step
  Seconds progress_ = 0;     // that has not yet given a restart back
  int without_step_ = 0;     // generations in a row
  std::string signature_;
  std::int64_t failed_step_ = -1;
  int alike_ = 0;
  std::set<std::string> on_;  // nodes of the failures that were alike
};

}  // namespace ddp::elastic

// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/elastic/accounting/run_account.h"

#include <utility>

namespace ddp::elastic {

void RunAccount::add_line(std::string_view line) {
  if (const auto entry = parse_entry(line)) add(*entry);
}

void RunAccount::begin(const Entry& entry) {
  // Without SLURM, each start of ddp-run is a job of its own.
  const bool same_job = !entry.job.empty() && entry.job == job_;
  run_ = entry.run;
  job_ = entry.job;
  anew_.reset();
  if (is_over()) account_.reset();
  if (account_ && !same_job) anew_.emplace();
  if (!account_) account_.emplace();
  account_->add(entry);
  if (anew_) anew_->add(entry);
}

void RunAccount::add(const Entry& entry) {
  if (entry.kind == EntryKind::begin) return begin(entry);
  if (!account_ || entry.run != run_) return;
  account_->add(entry);
  if (!anew_) return;
  anew_->add(entry);
  if (!anew_->told_steps()) return;
  // A program that begins with the first step has resumed from nothing.
  if (anew_->first_step() == 0) account_ = std::move(*anew_);
  anew_.reset();
}

}  // namespace ddp::elastic

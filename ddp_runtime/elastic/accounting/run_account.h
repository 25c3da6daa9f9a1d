// SPDX-License-Identifier: Apache-2.0
// The account of the newest run in a file of events, which may have several: a job that is requeued
// or submitted again continues the run of the job before it; a job that begins anew does not.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "ddp_runtime/elastic/accounting/account.h"
#include "ddp_runtime/elastic/accounting/entry.h"

namespace ddp::elastic {

class RunAccount {
 public:
  // Entries of other runs of ddp-run than the one that has begun last are left out, as are those
  // before the first `begin`.
  void add(const Entry& entry);
  // A line of a file; one that is damaged is left out.
  void add_line(std::string_view line);

  // nullopt until a job has begun.
  const std::optional<Account>& account() const noexcept { return account_; }
  // The next job begins another run: this one has ended well.
  bool is_over() const noexcept { return account_ && account_->code() == 0; }

 private:
  void begin(const Entry& entry);

  std::optional<Account> account_;
  // Since the last `begin` only, until it is known whether the program has begun anew.
  std::optional<Account> anew_;
  std::string run_;
  std::string job_;
};

}  // namespace ddp::elastic

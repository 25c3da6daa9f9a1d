// SPDX-License-Identifier: Apache-2.0
// What SLURM knows of a job that has ended.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::post_mortem {

struct JobRecord {
  std::string state;      // "FAILED", "TIMEOUT", "CANCELLED", ...; see squeue(1), JOB STATE CODES
  std::string nodes;      // as SLURM writes them: "node[1-2]"; empty if unknown
  std::string directory;  // in which it was submitted; empty if unknown
  std::string output;     // the file of its standard output; empty if unknown
  std::string error_output;  // and of its standard error
};

// Whether a text has the form of a job's number: "1234", or "1234_5" for a task of an array.
bool is_job_number(std::string_view text) noexcept;

// Read one line of `scontrol --oneliner show job`, and of `sacct --parsable2 --noheader
// --format=state,nodelist,workdir`. Return nullopt for another text.
std::optional<JobRecord> read_scontrol_job(std::string_view text);
std::optional<JobRecord> read_sacct_job(std::string_view text);

// Asks SLURM: scontrol, which forgets a job after some minutes, and then sacct, which some sites do
// not have. Returns nullopt if neither knows the job.
std::optional<JobRecord> find_job(const std::string& number);

}  // namespace ddp::post_mortem

// SPDX-License-Identifier: Apache-2.0
// The port that the leader listens on: MASTER_PORT.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"

namespace ddp::launch {

struct PortChoice {
  std::vector<std::uint16_t> candidates;  // the first is the step's port; at least one, at most 64
  std::string rule;                       // one phrase
  std::string source;
};

// Chooses from the step and the settings alone, so the result is the same in all tasks: the ports
// that SLURM reserved for the step, without the port that Cray's PMI uses, else port lowest + (key
// mod count) of the range for computed ports. The other candidates are for a step of one node,
// which may use the next one if a port is taken. Throws LaunchError if SLURM_STEP_RESV_PORTS cannot
// be parsed.
PortChoice choose_port(const StepFacts& step, const Settings& settings);

// Returns ports for services other than the leader's store (JAX's coordinator; TensorFlow's
// workers, one for each task of a node) that differ from the MASTER_PORT of this step and of
// neighboring steps: the other ports that SLURM reserved, else ports half of the range away.
// Returns fewer than `count` if there are not enough. The result is the same in all tasks of the
// step.
std::vector<std::uint16_t> service_ports(const StepFacts& step, const Settings& settings,
                                         std::uint32_t count);

// Returns the ports of which a guard of --ddp=watch on rank 0's node takes the first free one. They
// differ from the other computed ports; none if the range for these is small. The result is the
// same in all tasks of the step.
std::vector<std::uint16_t> watch_ports(const StepFacts& step, const Settings& settings);

}  // namespace ddp::launch

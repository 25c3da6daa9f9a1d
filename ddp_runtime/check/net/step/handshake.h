// SPDX-License-Identifier: Apache-2.0
// The handshake between a task and the leader: the task identifies itself, and both prove that they
// know the step's secret (base/secret/proof.h). Messages are small, because any process may send
// them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/secret/proof.h"
#include "ddp_runtime/check/net/measure/protocol.h"
#include "ddp_runtime/check/net/step/control_channel.h"
#include "ddp_runtime/comm/secret/step_secret.h"

namespace ddp::check {

// Size limit of all messages before the proofs.
inline constexpr std::size_t kMaxFirstBytes = 4096;

// The first message of a task.
struct Presentation {
  std::string program;
  std::string identity;  // identity of the step
  int rank = 0;
  std::string node;
  std::string key;    // source of the task's secret
  std::string nonce;  // nonce of the task
};
nlohmann::json to_message(const Presentation& presentation);
// Throws nlohmann::json::exception if the message is not a presentation.
Presentation presentation_from(const nlohmann::json& message);

Meeting meeting_of(const Presentation& presentation, const std::string& leaders_nonce);

// The leader's answer to a presentation, with its proof.
nlohmann::json challenge_of(const comm::StepSecret& secret, const Meeting& meeting);

// The task's side: sends the presentation, verifies the leader's proof, sends the task's proof, and
// seals the channel. Without a secret, it only sends the presentation. Returns the step's key, or
// zeros without a secret. Throws NetError with the leader's reason if the leader refuses the task,
// or if the answering process does not know the secret.
Key introduce(ControlChannel& channel, const Hello& hello, const comm::StepSecret& secret,
              Deadline deadline);

// Throws NetError with the leader's reason if the message is a refusal.
void require_no_refusal(const nlohmann::json& message);

}  // namespace ddp::check

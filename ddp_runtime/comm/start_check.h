// SPDX-License-Identifier: Apache-2.0
// Checks of the process that every World makes first.
#pragma once

namespace ddp::comm {

// Adds a check; `check` throws if this process cannot train. For initializers of static variables,
// so that a library can check what it depends on before a program uses it.
void add_start_check(void (*check)());

// Makes all added checks. Throws the first one's exception.
void make_start_checks();

}  // namespace ddp::comm

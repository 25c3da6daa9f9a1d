// SPDX-License-Identifier: Apache-2.0
// SLURM's plugin interface, adapted for C++ and for a library that hides its symbols: SLURM's
// header uses uint32_t without including it, and declares the callbacks outside extern "C".
#pragma once

#include <cstdint>

#pragma GCC visibility push(default)
extern "C" {
#include <slurm/slurm.h>
#include <slurm/spank.h>

// SPANK_PLUGIN defines these. In C++ a const object is local to its file unless declared before.
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
}
#pragma GCC visibility pop

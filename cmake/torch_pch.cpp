// SPDX-License-Identifier: Apache-2.0
// The precompiled header needs a target, and a target needs a source file.

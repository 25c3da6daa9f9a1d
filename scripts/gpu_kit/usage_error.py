# SPDX-License-Identifier: Apache-2.0
"""An error that the user can fix; its text is one sentence."""


class UsageError(Exception):
    pass

"""What goes wrong through no fault of the program."""


class InputError(ValueError):
    """Something the user can put right; the message says what and how."""


class DeviceError(RuntimeError):
    """A GPU failed, or cannot be had."""


class WorkerError(RuntimeError):
    """A worker process failed, has gone, or did not answer in time."""

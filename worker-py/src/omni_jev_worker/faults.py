"""What a failed start means: a checkpoint or setting that cannot work, or a machine that may yet.

Reading a checkpoint fails in as many ways as the libraries that read it, so the rule is by
exclusion: what is not known to be the machine's fault (memory, device, disk) is the checkpoint's,
since another start would find the same files.
"""

import errno
from typing import Final

from omni_jev_worker.exits import Refusal, bad_configuration

_MOST: Final = 300

# Classes of torch and our own word for the first, by name: this module is imported before torch may
# be.
_MACHINE_CLASSES: Final = {"OutOfMemoryError", "OutOfMemory", "AcceleratorError"}
_MACHINE_WORDS: Final = (
    "out of memory",
    "not enough memory",
    "allocate memory",
    "too many open files",
    "no space left",
    "cuda error",
    "cudnn error",
    "hip error",
    "command buffer",
)
_MACHINE_ERRNOS: Final = {
    errno.EAGAIN,
    errno.EINTR,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.ENOSPC,
    errno.ESTALE,
    errno.ETIMEDOUT,
}

# Exceptions whose text is a sentence; of others it is a bare word, such as a missing key.
_TELLING: Final = (ValueError, OSError, RuntimeError)

# Which file was being read, by the function of laya or safetensors that read it.
_READERS: Final = {
    "_load_tokenizer": "tokenizer/",
    "build_model": "encoder/config.json",
    "load_file": "model.safetensors",
}


def one_line(text: str, most: int = _MOST) -> str:
    """Join the lines of a text and cut it at a word, to ``most`` characters."""
    joined = " ".join(text.split())
    if len(joined) <= most:
        return joined
    whole_words = joined[:most].rpartition(" ")[0]
    return f"{whole_words or joined[:most]} …"


def first_line(fault: BaseException) -> str:
    """Give the first line of an exception's text, or its type: torch's go on for many lines."""
    return one_line((str(fault).strip().splitlines() or [type(fault).__name__])[0])


def cause_of(fault: BaseException) -> str:
    """Say in one line what an exception of a library means."""
    text = one_line(str(fault))
    if text and isinstance(fault, _TELLING):
        return text
    return f"{type(fault).__name__}: {text}" if text else type(fault).__name__


def is_the_machines(fault: BaseException) -> bool:
    """Say whether another start may go better, with the same files and flags."""
    if isinstance(fault, MemoryError):
        return True
    if any(kind.__name__ in _MACHINE_CLASSES for kind in type(fault).__mro__):
        return True
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault.errno in _MACHINE_ERRNOS
    # Libraries raise these as RuntimeError, or as a class of their own around a system's error.
    text = str(fault).lower()
    return any(words in text for words in _MACHINE_WORDS)


def unusable(checkpoint: str, fault: Exception) -> Refusal:
    """Make the refusal of a checkpoint that a library could not read or run."""
    part = _file_being_read(fault)
    what = f": its {part} cannot be used" if part else " cannot be used"
    cure = " (give this user read access)" if isinstance(fault, PermissionError) else ""
    return bad_configuration(f"checkpoint {checkpoint}{what}: {cause_of(fault)}{cure}")


def refusal_of(fault: BaseException) -> Refusal | None:
    """Give the refusal in a failed start; none for a failure that another start may cure."""
    if isinstance(fault, Refusal):
        return fault
    if isinstance(fault, ImportError):
        return bad_configuration(
            f"a Python package is missing or broken: {fault} (install requirements.lock)"
        )
    return None


def _file_being_read(fault: BaseException) -> str | None:
    trace = fault.__traceback__
    while trace is not None:
        if part := _READERS.get(trace.tb_frame.f_code.co_name):
            return part
        trace = trace.tb_next
    return None

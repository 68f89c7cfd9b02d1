"""An error as pyo3 has it for a panic of Rust code; free of torch."""


class RustPanic(BaseException):
    """As pyo3's PanicException: not an Exception."""

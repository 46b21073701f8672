"""NVIDIA's management library: devices found, and each reading asked for by itself, so that one that fails is None.

Source: nvml.h, by the module ``pynvml`` (package nvidia-ml-py).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml

from eacgm.errors import UnsupportedError
from eacgm.producers.gpu_reading import GpuReading, Number, OnGpu, board_name
from eacgm.producers.xids import Address

#: answers of a library that has no driver any more
_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
#: NVML and DCGM write "not available" as the largest numbers of their types
_BLANKS = frozenset({0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
_BLANKS_FROM = 0x7FFFFFFFFFFFFFF0
#: field of the union that a field value is read from, by its type
_VALUE_OF = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
_NVLINK_FIELDS = (
    pynvml.NVML_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL,
    pynvml.NVML_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL,
)
_PCIE_FIELDS = {
    "pcie_sent_bytes": pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
    "pcie_received_bytes": pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
}
_PCIE_RATES = {
    "pcie_sent_bytes": pynvml.NVML_PCIE_UTIL_TX_BYTES,
    "pcie_received_bytes": pynvml.NVML_PCIE_UTIL_RX_BYTES,
}
_KILOBYTE = 1024
#: by version, newest first: pynvml's own names without one raise another kind of error where the driver is older
_PROCESS_LISTS = (
    (pynvml.nvmlDeviceGetComputeRunningProcesses_v3, pynvml.nvmlDeviceGetComputeRunningProcesses_v2),
    (pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2),
)
#: XIDs taken at a time; more wait for the next round
_MAX_EVENTS = 256


class DriverGoneError(UnsupportedError):
    """The driver does not answer any more; it may come back."""


class _GpuLostError(Exception):
    """NVML says that the GPU is lost."""


@dataclass(slots=True)
class _Device:
    index: int
    handle: Any
    uuid: str
    address: Address | None
    lost: bool = False
    utilization_read_us: int = 0


class Nvml:
    """An open library. Raises ``UnsupportedError`` where there is none, or no driver.

    ``left_out`` counts the readings that a round had no time for. Not for several threads.
    """

    def __init__(self, *, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.left_out = 0
        self._clock_ns = clock_ns
        self._deadline_ns: int | None = None
        self._events: Any = None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            raise UnsupportedError(f"NVML: {error}; GPUs are read once NVIDIA's driver answers") from None
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            self.close()
            raise UnsupportedError(f"NVML: {error}; GPUs are read once NVIDIA's driver answers") from None
        self._listen()
        self._devices = [self._find(index) for index in range(count)]

    @property
    def n_gpus(self) -> int:
        """How many GPUs the driver counts."""
        return len(self._devices)

    @property
    def driver_version(self) -> str:
        """The driver's version, ``?`` if it does not tell."""
        return str(self._ask(pynvml.nvmlSystemGetDriverVersion) or "?")

    def close(self) -> None:
        """Let the library go; it stays loaded."""
        # if the driver is gone nothing is left to let go
        if self._events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._events)
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()

    def read(self, deadline_ns: int) -> list[GpuReading]:
        """Read all GPUs; what is not asked for by ``deadline_ns`` (monotonic) is left out, counted in ``left_out``.

        Raises ``DriverGoneError``.
        """
        self._deadline_ns, self.left_out = deadline_ns, 0
        self._devices = [device if device.handle else self._find(device.index) for device in self._devices]
        # another begins each round: if time is short, it is not always the same that go short
        turn = self._devices.pop(0) if self._devices else None
        if turn is not None:
            self._devices.append(turn)
        return sorted((r for device in self._devices for r in self._read(device)), key=lambda r: (r.index or 0, r.uuid))

    def take_xids(self) -> list[tuple[str, int]]:
        """Return the XIDs since the last time, as (board, code), in order. Raises ``DriverGoneError``."""
        found: list[tuple[str, int]] = []
        if self._events is None:
            return found
        known = [device for device in self._devices if device.handle is not None]
        board_of = {_pointer(device.handle): board_name(device.address, device.uuid) for device in known}
        for _ in range(_MAX_EVENTS):
            try:
                data = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError as error:
                _check_driver(error)
                break
            if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
                found.append((board_of.get(_pointer(data.device), ""), int(data.eventData)))
        return found

    def _find(self, index: int) -> _Device:
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        except pynvml.NVMLError as error:
            # it counts, but does not answer: it is told by its place, and asked for again in the next round
            _check_driver(error)
            return _Device(index, None, f"gpu-{index}", None, lost=error.value == pynvml.NVML_ERROR_GPU_IS_LOST)
        self._register(handle)
        try:
            uuid = str(self._ask(pynvml.nvmlDeviceGetUUID, handle) or f"gpu-{index}")
            pci = self._ask(pynvml.nvmlDeviceGetPciInfo, handle)
        except _GpuLostError:
            return _Device(index, None, f"gpu-{index}", None, lost=True)
        address = None if pci is None else (int(pci.domain), int(pci.bus), int(pci.device))
        return _Device(index, handle, uuid, address)

    def _listen(self) -> None:
        """Ask to be told of XIDs; where that is not supported the kernel log remains."""
        with suppress(pynvml.NVMLError):
            self._events = pynvml.nvmlEventSetCreate()

    def _register(self, handle: Any) -> None:
        if self._events is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._events)

    def _read(self, device: _Device) -> list[GpuReading]:
        reading = GpuReading(device.uuid, device.index, device.address, self._clock_ns())
        if device.handle is None:
            reading.lost = device.lost
            return [reading]
        try:
            self._read_board(device, reading)
            instances = self._instances(device.handle)
            if not instances:
                self._read_use(device, device.handle, reading)
            found = [self._read_instance(device, handle, reading) for handle in instances]
            self._read_pcie_rates(device.handle, reading)
            for instance in found:
                instance.rates = reading.rates
            return found or [reading]
        except _GpuLostError:
            return [GpuReading(device.uuid, device.index, device.address, self._clock_ns(), lost=True)]

    def _read_board(self, device: _Device, reading: GpuReading) -> None:
        """Read what belongs to the whole board."""
        handle, gauges = device.handle, reading.gauges
        gauges["temperature_celsius"] = self._number(
            pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU
        )
        gauges["power_watts"] = _scaled(self._number(pynvml.nvmlDeviceGetPowerUsage, handle), 1e-3)
        gauges["power_limit_watts"] = _scaled(self._number(pynvml.nvmlDeviceGetEnforcedPowerLimit, handle), 1e-3)
        for name, clock in (("sm_clock_hertz", pynvml.NVML_CLOCK_SM), ("memory_clock_hertz", pynvml.NVML_CLOCK_MEM)):
            gauges[name] = _scaled(self._number(pynvml.nvmlDeviceGetClockInfo, handle, clock), 1e6)
        reasons = self._number(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if reasons is None:
            # drivers before 535 know it by its former name
            reasons = self._number(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        gauges["throttle_reasons"] = reasons
        kind, since = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
        gauges["ecc_errors"] = _scaled(self._number(pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, since), 1.0)
        replays = self._number(pynvml.nvmlDeviceGetPcieReplayCounter, handle)
        if replays is not None:
            reading.totals["pcie_replays"] = float(replays)
        self._read_fields(handle, reading)

    def _read_fields(self, handle: Any, reading: GpuReading) -> None:
        ids = [*_NVLINK_FIELDS, *_PCIE_FIELDS.values()]
        values = self._ask(pynvml.nvmlDeviceGetFieldValues, handle, ids)
        told = {} if values is None else {ids[row]: _field_value(value) for row, value in enumerate(values)}
        errors = [value for value in map(told.get, _NVLINK_FIELDS) if value is not None]
        if errors:
            reading.totals["nvlink_errors"] = float(sum(errors))
        for name, number in _PCIE_FIELDS.items():
            value = told.get(number)
            if value is not None:
                reading.totals[name] = float(value)

    def _read_pcie_rates(self, handle: Any, reading: GpuReading) -> None:
        """Read the rates where there is no counter: last of all, as NVML measures for 20 ms each."""
        for name, counter in _PCIE_RATES.items():
            if name not in reading.totals:
                rate = self._number(pynvml.nvmlDeviceGetPcieThroughput, handle, counter)
                if rate is not None:
                    reading.rates[name] = float(rate) * _KILOBYTE

    def _read_use(self, device: _Device, handle: Any, reading: GpuReading) -> None:
        """Read what belongs to a GPU or MIG instance: memory, activity, processes."""
        whole = handle is device.handle
        # of a MIG instance NVML tells neither activity
        rates = self._ask(pynvml.nvmlDeviceGetUtilizationRates, handle) if whole else None
        if rates is not None:
            reading.gauges["utilization_ratio"] = _scaled(_told(rates.gpu), 0.01)
            reading.gauges["memory_activity_ratio"] = _scaled(_told(rates.memory), 0.01)
        memory = self._ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        if memory is not None:
            reading.gauges["memory_used_bytes"] = _scaled(_told(memory.used), 1.0)
            reading.gauges["memory_total_bytes"] = _scaled(_told(memory.total), 1.0)
        lists = [self._processes(versions, handle) for versions in _PROCESS_LISTS]
        if any(processes is not None for processes in lists):
            ratios = self._sm_ratios(device) if whole else {}
            reading.processes = {
                int(process.pid): OnGpu(_told(process.usedGpuMemory), ratios.get(int(process.pid)))
                for processes in lists
                for process in processes or ()
            }

    def _processes(self, versions: tuple[Callable[..., Any], ...], handle: Any) -> Any:
        answers = (self._ask(version, handle) for version in versions)
        return next((answer for answer in answers if answer is not None), None)

    def _sm_ratios(self, device: _Device) -> dict[int, float]:
        """Return each process's share of the SMs: the mean of the driver's samples since the last time."""
        read = self._ask(pynvml.nvmlDeviceGetProcessUtilization, device.handle, device.utilization_read_us)
        samples: dict[int, list[float]] = {}
        for sample in read or ():
            if sample.timeStamp > device.utilization_read_us and sample.smUtil <= 100:
                samples.setdefault(int(sample.pid), []).append(sample.smUtil * 0.01)
        if read:
            device.utilization_read_us = max(device.utilization_read_us, *(int(sample.timeStamp) for sample in read))
        return {pid: sum(ratios) / len(ratios) for pid, ratios in samples.items()}

    def _instances(self, handle: Any) -> list[Any]:
        """Return the handles of a GPU's MIG instances; empty where MIG is off."""
        mode = self._ask(pynvml.nvmlDeviceGetMigMode, handle)
        if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = self._number(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
        found = (self._ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place) for place in range(int(count)))
        return [instance for instance in found if instance is not None]

    def _read_instance(self, device: _Device, handle: Any, board: GpuReading) -> GpuReading:
        uuid = str(self._ask(pynvml.nvmlDeviceGetUUID, handle) or device.uuid)
        gauges, totals = dict(board.gauges), dict(board.totals)
        reading = GpuReading(uuid, board.index, board.address, board.taken_ns, gauges=gauges, totals=totals)
        self._read_use(device, handle, reading)
        return reading

    def _number(self, call: Callable[..., Any], *arguments: Any) -> int | None:
        return _told(self._ask(call, *arguments))

    def _ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return NVML's answer, None where it has none or time is up."""
        if self._deadline_ns is not None and self._clock_ns() >= self._deadline_ns:
            self.left_out += 1
            return None
        try:
            return call(*arguments)
        except pynvml.NVMLError as error:
            _check_driver(error)
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise _GpuLostError from None
            return None


def _check_driver(error: Any) -> None:
    if error.value in _GONE:
        raise DriverGoneError(f"NVML: {error}; GPUs are read again once NVIDIA's driver answers") from None


def _told(value: Any) -> int | None:
    """Return a whole number, None where it stands for "not available"."""
    if value is None or value in _BLANKS or value >= _BLANKS_FROM:
        return None
    return int(value)


def _scaled(value: int | None, factor: float) -> Number:
    return None if value is None else value * factor


def _field_value(field: Any) -> int | None:
    if field.nvmlReturn != pynvml.NVML_SUCCESS or not 1 <= field.valueType < len(_VALUE_OF):
        return None
    return _told(getattr(field.value, _VALUE_OF[field.valueType]))


def _pointer(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0

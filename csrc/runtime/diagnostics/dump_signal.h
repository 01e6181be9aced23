// DumpSignal: SIGUSR1 as a request for a report.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_DUMP_SIGNAL_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_DUMP_SIGNAL_H_

namespace keras_ring {

// From now on a SIGUSR1 to this process makes a thread of its own call `dump`:
// the handler of a signal may do nothing, and the threads that could do it
// otherwise may be the ones that hang. A program that handles the signal itself
// keeps it. Later calls change nothing. Not in processes forked from this one.
void CallOnDumpSignal(void (*dump)());

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_DUMP_SIGNAL_H_

// RequestSignal: a signal to this process as a request for a report.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_REQUEST_SIGNAL_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_REQUEST_SIGNAL_H_

namespace keras_ring {

// From now on SIGUSR1 or SIGUSR2, whichever `signal` is, makes a thread of its
// own call `answer`: the handler of a signal may do nothing, and the threads
// that could do it otherwise may be the ones that hang. A program that handles
// the signal itself keeps it. Later calls change nothing. Not in processes
// forked from this one. `thread`: its name, at most 15 characters.
void AnswerSignal(int signal, const char* thread, void (*answer)());

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_REQUEST_SIGNAL_H_

// RequestSignal: a signal to this process as a request for a report.
#ifndef KERAS_RING_RUNTIME_DIAGNOSTICS_REQUEST_SIGNAL_H_
#define KERAS_RING_RUNTIME_DIAGNOSTICS_REQUEST_SIGNAL_H_

namespace keras_ring {

// From now on `signal` (SIGUSR1 or SIGUSR2) makes a separate thread call
// `answer`: a signal handler may do hardly anything, and other threads may be
// the ones that hang. If the program handles the signal itself, its handler
// stays. Later calls change nothing. Has no effect in processes forked from
// this one. `thread`: the name of the thread, at most 15 characters.
void AnswerSignal(int signal, const char* thread, void (*answer)());

}  // namespace keras_ring

#endif  // KERAS_RING_RUNTIME_DIAGNOSTICS_REQUEST_SIGNAL_H_

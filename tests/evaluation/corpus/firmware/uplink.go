package uplink

import "time"

// Backoff says how long to wait before the satellite modem is tried again: it doubles from four seconds to an hour.
func Backoff(attempt int) time.Duration {
	wait := 4 * time.Second << uint(attempt)
	if wait > time.Hour || wait <= 0 {
		return time.Hour
	}
	return wait
}

// SplitFrame cuts a message into frames of at most 340 bytes, which is what the modem takes at once.
func SplitFrame(message []byte) [][]byte {
	var frames [][]byte
	for len(message) > 340 {
		frames = append(frames, message[:340])
		message = message[340:]
	}
	return append(frames, message)
}

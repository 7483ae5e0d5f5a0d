/** Widgets of the web dashboard that shows where the buoys are and how they feel. */

export interface BuoyState {
  id: string;
  volts: number;
  lastSeen: Date;
}

/** A buoy counts as missing when it was silent for more than six hours. */
export function isMissing(buoy: BuoyState, now: Date): boolean {
  return now.getTime() - buoy.lastSeen.getTime() > 6 * 3600 * 1000;
}

/** Colours the battery symbol: red below 11.2 volts, amber below 11.9, else green. */
export function batteryColour(buoy: BuoyState): "red" | "amber" | "green" {
  if (buoy.volts < 11.2) return "red";
  return buoy.volts < 11.9 ? "amber" : "green";
}

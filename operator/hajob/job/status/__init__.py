"""The reports about a job: its status with the incidents and the journal in it, and the Events; pure."""

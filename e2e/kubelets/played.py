"""What PROVIDER=kubelets plays of `e2e/scenarios`, and why it does not play the others; each one is in a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.bootstrap.paths import CHECKOUT

SCENARIOS: Final = CHECKOUT / "e2e" / "scenarios"
Tests = Mapping[str, Sequence[str]]
"""Names of tests, by the file they are in."""

PLAYED: Final[Tests] = {
    "test_checkpoints": ("test_a_truncated_checkpoint_is_refused_the_older_loaded",),
    "test_controller_killed": ("test_lost_at_random_moments_of_a_training_with_faults",),
    "test_controller_killed_in_actions": ("test_lost_in_a_replacement",),
    "test_elastic": (
        "test_a_job_shrinks_without_a_node_and_grows_back",
        "test_a_fault_while_shrunk_restarts_with_what_is_left",
    ),
    "test_failure_modes": (
        "test_a_pod_that_the_server_refuses_makes_the_job_impossible",
        "test_deleted_and_applied_again_at_once_with_a_dead_node",
        "test_a_deleted_job_leaves_nothing",
        "test_suspended_and_resumed",
        "test_a_lost_coordinator_costs_no_restart",
    ),
    "test_hardware_faults": (
        "test_a_chip_that_must_be_reset_is_left",
        "test_a_sub_healthy_chip_is_left_while_the_training_goes_on",
        "test_hardware_of_the_node_that_breaks_moves_its_ranks",
    ),
    "test_one_fault": (
        "test_a_container_that_is_killed_is_replaced_at_once",
        "test_an_operator_that_stands_still_changes_nothing",
        "test_a_link_fault_is_retried_then_gets_more_each_time",
    ),
    "test_pauses": ("test_a_pause_by_hand_holds_until_it_is_taken_back",),
    "test_several_faults": (
        "test_a_second_process_dies_while_a_node_is_replaced",
        "test_two_nodes_at_once",
    ),
    "test_spares": (
        "test_a_lost_node_is_replaced_on_the_spare_before_others",
        "test_a_warm_spare_becomes_the_lost_pod",
    ),
    "test_two_jobs": ("test_a_higher_job_takes_a_node_and_the_lower_shrinks",),
}
"""Real nodes play them as they are."""

LEFT_OUT: Final[Mapping[str, Tests]] = {
    "its scheduler or manager is a stand-in of process nodes, which the released image has not": {
        "test_kueue": (
            "test_a_preempted_job_resumes_with_equal_weights",
            "test_what_trains_trains_on_while_kueue_is_away",
            "test_a_drained_queue_stops_a_job_and_lets_it_go_on",
            "test_kueue_admits_and_volcano_places",
        ),
        "test_kueue_troubles": (
            "test_what_was_borrowed_is_asked_back",
            "test_a_check_is_asked_then_lost_then_rejected",
            "test_flavors_bear_taints_and_choose_nodes",
            "test_a_topology_evicts_what_hajob_would_heal",
            "test_a_held_queue_lets_train_what_trains",
            "test_a_workload_deleted_by_hand_is_made_again",
            "test_a_preempted_job_is_suspended_and_edited",
            "test_kueue_ends_amid_a_preemption",
            "test_a_save_that_hangs_is_bounded",
            "test_the_queue_admits_fewer_and_adds_none",
            "test_spares_are_preempted_alone",
            "test_a_webhook_that_fails_is_named",
            "test_doctor_reads_queues_and_configuration",
        ),
        "test_volcano": (
            "test_a_dead_node_is_replaced_with_few_writes",
            "test_two_nodes_at_once_under_volcano",
            "test_pods_that_others_delete_are_replaced_at_once",
            "test_a_job_shrinks_and_grows_under_volcano",
            "test_suspended_resumed_and_applied_again",
            "test_what_a_job_waits_for_is_told_with_its_queue",
            "test_two_jobs_in_one_queue_take_turns",
            "test_a_replacement_stays_in_the_super_pod_of_its_block",
            "test_a_restart_with_fewer_nodes_under_volcano",
        ),
        "test_beside_mindcluster": ("test_gangs_of_theirs_share_queue_and_nodes_of_volcano",),
        "test_device_plugin_mode": (
            "test_a_part_of_a_node_is_volcanos_alone",
            "test_whole_nodes_get_their_notes_from_hajob",
        ),
    },
    "nodes of sixteen chips, beside Volcano's own programs": {
        "test_blocks_by_real_volcano": ("test_blocks_are_placed_once_and_replacements_held",),
    },
    "no device plugin notes there which chips a pod has": {
        "test_rank_tables": (
            "test_the_rank_table_follows_a_replacement",
            "test_a_rank_started_in_place_reads_the_same_table",
            "test_chips_that_nobody_notes_are_named",
        ),
    },
    "its receiver listens on the loopback, and the operator reads address and key from a directory of this machine": {
        "test_incidents_posted": ("test_a_receiver_that_comes_late_hears_of_all",),
    },
    "six nodes with labels of super pods are more than it runs": {
        "test_blocks_of_nodes": ("test_blocks_wait_for_room_and_stay_in_their_super_pod",),
    },
    "the training image of real nodes has no TaskD, nor its stand-in": {
        "test_taskd": (
            "test_taskd_starts_a_killed_rank_again_in_place",
            "test_a_killed_rank_beside_the_manager_costs_a_restart",
            "test_a_node_under_taskd_is_replaced",
            "test_a_job_under_taskd_shrinks_and_grows_back",
            "test_a_retry_under_taskd_that_fails_is_named_again",
            "test_a_node_is_left_by_a_hot_switch_under_taskd",
            "test_a_pause_under_taskd_ends_and_a_fault_follows",
            "test_a_save_under_taskd_is_what_the_next_start_loads",
            "test_the_node_of_the_manager_restarts_every_pod",
            "test_a_lost_manager_is_answered_with_a_restart",
            "test_coordinator_and_agent_are_lost_beside_taskd",
            "test_a_stress_test_quarantines_what_it_finds_bad",
            "test_rails_are_borrowed_and_given_back_in_pauses",
            "test_a_coordinator_away_for_long_costs_a_restart",
            "test_the_six_faults_of_the_demo_under_taskd",
        ),
    },
    "it was never tried there; it uses nothing that real nodes lack, as far as is known": {
        "test_beside_mindcluster": ("test_a_fault_counts_once_and_their_job_stays",),
        "test_cause_in_two_commands": (
            "test_broken_trainings_name_their_cause",
            "test_wrong_manifests_name_their_cause",
        ),
        "test_end_of_a_training": ("test_crashes_after_the_final_checkpoint_restart_nothing",),
        "test_limits_left_alone": ("test_a_node_is_lost_with_every_limit_left_alone",),
        "test_checkpoints": (
            "test_without_a_copy_the_periodic_checkpoint_repairs",
            "test_a_checkpoint_that_no_rank_can_load_is_passed_over",
        ),
        "test_failure_modes": ("test_an_end_without_a_coordinator_is_complete",),
        "test_hardware_faults": ("test_a_chip_error_of_no_consequence_does_nothing",),
        "test_moves": ("test_an_excluded_node_is_left_without_losing_a_step",),
        "test_moves_that_fail": (
            "test_no_node_for_the_second_pod",
            "test_another_rank_dies_while_the_second_pod_starts",
        ),
        "test_one_fault": (
            "test_a_killed_process_is_restarted_in_place",
            "test_the_node_of_rank_zero_is_replaced",
            "test_mindios_own_tls_recovers",
        ),
        "test_one_rank_prints": ("test_a_rank_that_hangs_without_printing_is_blamed",),
        "test_pauses": (
            "test_a_node_that_fails_a_test_in_a_pause_is_left",
            "test_chips_are_tested_by_a_program_of_the_image",
        ),
        "test_rules": (
            "test_a_rank_that_hangs_and_a_line_that_a_rule_looks_for",
            "test_what_is_edited_reaches_a_job_that_trains",
        ),
        "test_several_faults": (
            "test_both_copies_lost_before_a_checkpoint_restart_the_job",
            "test_gates_without_a_lease_hold_and_nothing_is_lost",
        ),
        "test_through_kubectl": (
            "test_fields_are_edited_or_refused_with_a_way_out",
            "test_a_shrunk_job_is_suspended_and_resumed",
            "test_a_job_is_deleted_while_shrunk",
        ),
        "test_two_jobs": ("test_two_shrunk_jobs_grow_one_after_the_other",),
        "test_recovery_actions": (
            "test_a_node_that_vanishes_again_leaves_it_shrunk",
            "test_healthy_pods_of_dropped_ranks_stay_or_are_given_back",
        ),
    },
    "make e2e TRAINER=mindspore plays them, with an interpreter that the training image of real nodes has not": {
        "test_real_mindspore": (
            "test_a_killed_worker_comes_back_in_place",
            "test_the_node_of_the_first_workers_is_replaced",
            "test_workers_outlive_their_scheduler",
            "test_what_mindio_saved_is_loaded",
            "test_a_restart_loads_the_periodic_checkpoint",
            "test_a_node_is_left_by_a_hot_switch_of_mindspore",
            "test_a_pause_holds_mindspore_and_is_taken_back",
            "test_after_a_resume_the_second_fault_restarts",
        ),
    },
    "the training image of real nodes has no PyYAML, which the MindFormers of e2e imports": {
        "test_mindformers": (
            "test_workers_of_msrun_are_repaired_in_place",
            "test_the_node_of_the_first_worker_is_replaced",
            "test_a_saved_step_is_filled_and_loaded_by_all",
            "test_the_published_example_prints_and_saves_the_same",
        ),
    },
    "it needs the annotation that says which chips a pod has; the device plugin of these nodes does not write it, and"
    " then all ranks of the pod are started anew": {
        "test_hardware_faults": ("test_a_mild_chip_error_restarts_its_process_only",),
    },
    "its moments are those of MindIO's handlers, between ranks and coordinator, in which nodes have no part; of the"
    " losses of a controller or its pod one each is played": {
        "test_controller_killed": (
            "test_lost_in_every_handler_of_a_repair",
            "test_a_repair_whose_store_is_lost_is_saved",
        ),
        "test_controller_killed_in_actions": (
            "test_lost_while_it_shrinks_is_small_and_grows",
            "test_lost_in_a_move",
            "test_lost_while_every_rank_is_held",
            "test_lost_while_it_is_saved",
        ),
        "test_coordinators_node": (
            "test_its_pod_is_lost_in_a_repair_that_goes_on",
            "test_its_node_is_lost_in_a_repair_that_goes_on",
            "test_its_node_is_lost_while_it_is_saved",
            "test_its_node_is_lost_while_it_is_small",
        ),
        "test_moves_that_fail": (
            "test_a_second_process_dies_before_the_switch",
            "test_the_switch_itself_fails",
        ),
        "test_pod_lost_in_actions": (
            "test_its_pod_is_lost_in_a_replacement",
            "test_its_pod_is_lost_while_it_shrinks",
            "test_its_pod_is_lost_while_it_is_small",
            "test_its_pod_is_lost_in_a_move",
            "test_its_pod_is_lost_while_every_rank_is_held",
            "test_its_pod_is_lost_while_it_is_saved",
        ),
        "test_recovery_actions": ("test_a_growth_that_fails_is_saved_and_starts_at_full_size",),
    },
    "it asks for two nodes without chips, of which real nodes have one; the loss of such a node is played by"
    " test_real_faults": {
        "test_coordinators_node": ("test_its_node_is_lost_and_the_next_fault_is_in_place",),
        "test_moves": ("test_a_drained_coordinator_is_relieved_while_training",),
        "test_pod_lost_in_actions": ("test_the_node_of_a_small_jobs_coordinator_is_drained",),
    },
    "it runs a demo of its own; on real nodes that is make demo PROVIDER=kubelets": {
        "test_demo": (
            "test_six_faults_are_recovered_and_the_weights_equal",
            "test_one_flipped_byte_of_a_restored_shard_is_found",
            "test_nothing_is_left_however_it_ends",
        ),
    },
    "it changes the files of a training image in place, which is an OCI archive on real nodes": {
        "test_failure_modes": ("test_jobs_that_cannot_work_fail_with_reason_and_last_words",),
        "test_start_scripts": (
            "test_a_script_that_pipes_into_tee_is_recovered_in_place",
            "test_a_script_that_ends_with_1_after_its_training_completes",
            "test_a_script_that_ends_with_0_hides_no_failed_training",
            "test_torch_distributed_launch_trains_like_torchrun",
            "test_a_login_shell_with_a_torchrun_of_its_own_is_reached",
            "test_a_conversion_before_the_training_is_not_the_training",
            "test_ranks_that_end_with_0_and_did_not_train_have_failed",
            "test_what_a_script_would_not_resume_is_told_by_name",
            "test_what_high_availability_refuses_is_told_by_name",
        ),
        "test_one_node": (
            "test_it_trains_starts_from_its_checkpoint_and_completes",
            "test_a_lost_coordinator_costs_it_nothing",
        ),
    },
    "it calls MindIO as a wrong program does, which no node sees": {
        "test_failure_modes": ("test_misuse_of_mindio_is_named_and_the_training_ends_well",),
    },
    "it listens at the addresses that process nodes give to pods; a real pod has a network of its own": {
        "test_failure_modes": ("test_a_taken_port_is_named_and_the_node_avoided",),
        "test_one_rank_prints": ("test_a_healthy_job_whose_last_rank_alone_prints_runs",),
    },
    "real nodes play jobs in the nodes' network by test_real_tenants": {
        "test_host_network": (
            "test_jobs_with_ports_of_their_own_share_a_node",
            "test_a_coordinator_beside_its_own_ranks_serves_them",
        ),
    },
    "it wants nodes of other sizes than the session's, which have two chips each": {
        "test_layouts": (
            "test_every_number_of_nodes_at_once_is_replaced",
            "test_each_layout_shrinks_and_grows_back",
        ),
    },
    "it evicts or drains; test_real_faults does, too, with the kubelets' own part": {
        "test_moves": (
            "test_a_drained_node_is_emptied_with_the_training_running",
            "test_an_eviction_without_a_cordon_gets_its_turn",
        ),
    },
    "operators that stand still for so long are started anew by their kubelets; test_real_devices plays that": {
        "test_one_fault": ("test_an_operator_away_for_a_minute_changes_nothing",),
    },
    "its operator is another program of e2e, which the released image has not": {
        "test_operator_cut_off": ("test_a_leader_cut_off_from_its_jobs_hands_them_over",),
        "test_operator_killed": ("test_killed_after_each_act_every_recovery_ends",),
    },
    "the training image of real nodes has no torch": {
        "test_real_torch": (
            "test_a_killed_rank_comes_back_in_place",
            "test_the_node_of_rank_zero_is_replaced",
            "test_two_ranks_lost_at_once_come_back",
            "test_without_replacement_it_is_saved_and_starts_anew",
            "test_a_restart_goes_on_from_the_periodic_checkpoint",
            "test_the_coordinators_node_is_lost_and_two_faults_follow",
            "test_without_a_node_it_shrinks_and_grows_back",
            "test_the_coordinators_pod_is_lost_in_a_repair",
            "test_a_cordoned_node_is_left_with_the_training_running",
            "test_a_fault_of_memory_or_link_is_retried",
            "test_a_pause_holds_every_rank_and_is_taken_back",
            "test_a_warm_spare_takes_a_third_of_a_cold_start",
        ),
    },
    "it reads the coordinator's log within the second and a half that MindIO waits; kubectl is not so fast": {
        "test_several_faults": ("test_a_rank_dies_while_mindio_waits_for_its_answer",),
    },
    "a real node that was powered off cannot go on as if it had been frozen; a cut network, and healed, is played by"
    " test_real_faults": {
        "test_several_faults": ("test_a_node_that_comes_back_to_life_disturbs_nothing",),
    },
    "it deletes the object of a node, and a real kubelet registers again only when it is started anew": {
        "test_through_kubectl": ("test_cordon_and_deletions_cost_no_step",),
    },
}
"""By the reason."""


def of(tables: Tests) -> Iterator[tuple[str, str]]:
    """File and name of each test."""
    return ((file, test) for file, tests in tables.items() for test in tests)


def why_left_out(file: str, test: str) -> str:
    """The reason; empty for a scenario that is played, or stands in no table."""
    return next((reason for reason, tests in LEFT_OUT.items() if test in tests.get(file, ())), "")


def existing(directory: Path = SCENARIOS) -> Iterator[tuple[str, str]]:
    """File and name of each scenario that there is."""
    for path in sorted(directory.glob("test_*.py")):
        for test in re.findall(r"^(?:async )?def (test_\w+)", path.read_text(), re.MULTILINE):
            yield path.stem, test

"""The face that the agent of node rank 0 shows a TaskD manager: to TaskD it is ClusterD.

With `launcher: TaskD` MindIO's controller lives in the manager, a process of the user's. To the coordinator this
package is a controller host: it takes the same calls and tells the same callbacks (docs/protocols/mindcluster.md).
"""

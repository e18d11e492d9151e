package strategy

import "flashsale/model"

// LessonOf returns the lesson of a strategy, or an empty one for an unknown name.
func LessonOf(name string) model.Lesson {
	return map[string]model.Lesson{
		"naive": naiveLesson, "mutex": mutexLesson, "pessimistic": pessimisticLesson, "optimistic": optimisticLesson,
		"redis": redisLesson, "local": localLesson, "hybrid": hybridLesson,
	}[name]
}
